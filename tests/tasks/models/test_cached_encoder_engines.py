from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from storage.errors import ModelMismatch
from storage.root import Root
from tasks.models.cached_encoder import ENGINE, LEAST, load_kept_encoder, require_agreement
from tasks.models.encoder import OnnxEncoder
from tests.support.roots.skill_root import Export

PLACE = "vectors/some-384"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_what_makes_the_first_vectors_is_noted_and_goes_on_without_a_word(
    root: Root, minilm: OnnxEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for empty in (True, False):
        require_agreement(root, PLACE, minilm, empty=empty)
    held = root.read_json(f"{PLACE}/{ENGINE}")
    assert held is not None
    assert held["engine"] == minilm.engine
    assert "continued" not in caplog.text


def test_vectors_from_before_engines_were_noted_are_continued_if_they_are_the_same(
    root: Root, minilm: OnnxEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    require_agreement(root, PLACE, minilm, empty=False)
    held = root.read_json(f"{PLACE}/{ENGINE}")
    assert held is not None
    assert held["engine"] == "ONNX Runtime"
    assert f"vectors of ONNX Runtime are continued with {minilm.engine}" in caplog.text


def test_two_engines_make_the_same_vectors_within_the_tolerance(minilm: OnnxEncoder) -> None:
    texts = ["Prune the roses in March.", "hive " * 300, ""]
    cosines = (minilm.encode(texts) * minilm.by_onnx_runtime().encode(texts)).sum(axis=1)
    assert cosines.min() > LEAST + 0.0005


def test_vectors_that_differ_are_not_mixed(root: Root, minilm: OnnxEncoder) -> None:
    require_agreement(root, PLACE, minilm, empty=True)
    held = root.read_json(f"{PLACE}/{ENGINE}")
    assert held is not None
    turned = np.roll(np.asarray(held["vectors"]), 1, axis=1)
    root.write_json(f"{PLACE}/{ENGINE}", {"engine": "another", "vectors": turned.tolist()})
    with pytest.raises(ModelMismatch, match="was made with another, this machine encodes with"):
        require_agreement(root, PLACE, minilm, empty=False)


def test_a_root_notes_its_engine_once_it_encodes(root: Root, minilm_export: Export) -> None:
    encoder = load_kept_encoder(root.uri, str(minilm_export.folder))
    encoder.encode(["Knead the dough."])
    encoder.encode(["Knead the dough."])
    (noted,) = root.files("vectors", ENGINE)
    assert (root.read_json(noted) or {})["engine"] == OnnxEncoder(minilm_export.folder).engine
