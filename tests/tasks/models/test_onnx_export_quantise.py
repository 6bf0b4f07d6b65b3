from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from storage.errors import TerminalError
from storage.root import Root
from tasks.models.cached_encoder import vectors_of
from tasks.models.encoder import OnnxEncoder, card_of
from tasks.models.onnx_export import exported_encoder
from tests.support.roots.skill_root import MINILM, Export

TEXTS = [
    "Knead the dough for ten minutes.",
    "Open the hive only when it is warmer than fifteen degrees.",
    "`log-hive --colony 3` writes one line a colony.",
    "If the chain skips, replace the cassette.",
    "| size | seconds |\n|---|---|\n| small | 40 |",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Path:
    """A folder that holds the float export already."""
    models = tmp_path_factory.mktemp("models")
    (models / minilm_export.folder.name).symlink_to(minilm_export.folder)
    return models


@pytest.fixture(scope="module")
def small(models: Path) -> Path:
    return exported_encoder(models, MINILM, "int8")


def test_eight_bits_are_made_once_beside_the_float_export(models: Path, small: Path) -> None:
    made = (small / "model.onnx").stat().st_mtime_ns

    assert exported_encoder(models, MINILM, "int8") == small
    assert (small / "model.onnx").stat().st_mtime_ns == made
    assert sorted(os.listdir(models)) == sorted([small.name, small.name.removesuffix("-int8")])
    float_size = (exported_encoder(models, MINILM) / "model.onnx").stat().st_size
    assert (small / "model.onnx").stat().st_size < float_size / 3


def test_a_damaged_export_is_made_anew(models: Path, small: Path) -> None:
    whole = (small / "model.onnx").read_bytes()
    (small / "model.onnx").write_bytes(whole[:1000])

    assert exported_encoder(models, MINILM, "int8") == small
    assert (small / "model.onnx").read_bytes() == whole


def test_vectors_of_eight_bits_are_near_the_float_ones(minilm: OnnxEncoder, small: Path) -> None:
    coarse = OnnxEncoder(small).encode(TEXTS)
    fine = minilm.encode(TEXTS)

    cosines = (coarse * fine).sum(axis=1)
    assert cosines.min() > 0.95
    assert not np.allclose(coarse, fine, atol=1e-4)
    assert (coarse @ fine.T).argmax(axis=1).tolist() == list(range(len(TEXTS)))


def test_the_index_and_kept_vectors_tell_precisions_apart(
    tmp_path: Path, minilm_export: Export, small: Path
) -> None:
    fine, coarse = card_of(minilm_export.folder), card_of(small)

    assert coarse == {**fine, "revision": f"{fine['revision']}-int8"}
    assert vectors_of(Root(tmp_path), fine).folder != vectors_of(Root(tmp_path), coarse).folder


def test_a_model_that_cannot_be_quantised_is_named(
    tmp_path: Path, minilm_export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    broken = models / minilm_export.folder.name
    broken.mkdir(parents=True)
    (broken / "encoder.json").write_text((minilm_export.folder / "encoder.json").read_text())
    (broken / "model.onnx").write_bytes(b"no model")

    with pytest.raises(TerminalError, match=rf"quantising encoder {MINILM} to int8 failed: "):
        exported_encoder(models, MINILM, "int8")

    assert os.listdir(models) == [broken.name]
