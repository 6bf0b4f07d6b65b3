"""Encoders over what a root keeps, and the adapted one: each text is encoded once, by one engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from storage.errors import ModelMismatch
from storage.root import Root
from storage.vectors import text_hash, vector_stores
from tasks.models.adapted_encoder import WIDTH, AdaptedEncoder
from tasks.models.cached_encoder import (
    ENGINE,
    LEAST,
    KeptEncoder,
    kept_states,
    load_kept_encoder,
    require_agreement,
    vectors_of,
)
from tasks.models.encoder import OnnxEncoder
from tasks.models.token_states import packaged_projection
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.roots.skill_root import CountingEncoder, Export


class Shallow(WordEncoder, WordTokenizer):
    """An encoder that does not tell what it makes of tokens."""

    card: ClassVar[dict[str, Any]] = {"name": "words", "revision": "1", "dimension": 512}

    def __init__(self) -> None:
        self.encoded = []
        self.counted = []


TEXTS = ["Knead the dough.", "Open the hive.", "Knead the dough.", ""]


@pytest.fixture
def counting(minilm_export: Export) -> CountingEncoder:
    return CountingEncoder(minilm_export.folder)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_equal_texts_are_encoded_once_and_never_again(root: Root, counting: CountingEncoder) -> None:
    first = KeptEncoder(counting, root).encode(TEXTS)
    assert counting.encoded == ["Knead the dough.", "Open the hive.", ""]
    again = KeptEncoder(counting, root).encode([*TEXTS, "Light the smoker."])
    assert counting.encoded[3:] == ["Light the smoker."]
    assert np.array_equal(again[:4], first)
    assert np.array_equal(first, CountingEncoder(counting._folder).encode(TEXTS))


def test_states_are_made_with_the_vectors_and_neither_again(root: Root, counting: CountingEncoder) -> None:
    vectors, states = KeptEncoder(counting, root).encode_states(TEXTS)
    assert counting.encoded == ["Knead the dough.", "Open the hive.", ""]
    again = KeptEncoder(counting, root).encode_states([*TEXTS, "Light the smoker."])
    assert counting.encoded[3:] == ["Light the smoker."]
    assert np.array_equal(again[0][:4], vectors)
    assert again[1][:4] == states == CountingEncoder(counting._folder).encode_states(TEXTS)[1]
    assert states[0] == states[2] != states[1]
    assert states[3] == b""
    assert np.array_equal(KeptEncoder(counting, root).encode(TEXTS), vectors)
    assert len(counting.encoded) == 4
    root.delete("vectors")  # and states stay
    again = KeptEncoder(counting, root).encode_states(TEXTS)
    assert np.array_equal(again[0], vectors)
    assert again[1] == states


def test_a_vector_that_was_kept_without_states_stays_when_these_are_made(
    root: Root, counting: CountingEncoder
) -> None:
    older = -counting.encode(["Open the hive."])
    vectors_of(root, counting.card).add([text_hash("Open the hive.")], older)
    vectors, states = KeptEncoder(counting, root).encode_states(["Open the hive.", "Knead the dough."])
    assert np.array_equal(vectors[:1], older)
    assert all(states)
    assert len(vectors_of(root, counting.card)) == len(kept_states(root, counting.card)) == 2


def test_an_encoder_without_states_has_empty_ones_kept(root: Root) -> None:
    encoder = Shallow()
    made = [KeptEncoder(encoder, root).encode_states(["Open the hive."])[1] for _ in range(2)]
    assert (made, encoder.encoded) == ([[b""], [b""]], ["Open the hive."])


def test_states_packed_in_another_way_are_others(
    root: Root, counting: CountingEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned, found = -packaged_projection(), {kept_states(root, counting.card).folder}
    for name, other in (("STATES_VERSION", 0), ("packaged_projection", lambda: turned)):
        with monkeypatch.context() as changed:
            changed.setattr(f"tasks.models.token_states.{name}", other)
            found.add(kept_states(root, counting.card).folder)
    assert len(found) == 3


@pytest.mark.parametrize("changed", [{"revision": "other"}, {"max_tokens": 128}, {"pooling": "cls"}])
def test_whatever_changes_a_vector_has_vectors_of_its_own(
    root: Root, counting: CountingEncoder, changed: dict[str, object]
) -> None:
    KeptEncoder(counting, root).encode(TEXTS)
    counting.card = {**counting.card, **changed}
    KeptEncoder(counting, root).encode(["Knead the dough."])
    assert counting.encoded.count("Knead the dough.") == 2
    assert len(vector_stores(root)) == 2


PLACE = "vectors/some-384"


def engine_noted(root: Root) -> str:
    return str((root.read_json(f"{PLACE}/{ENGINE}") or {})["engine"])


def test_what_makes_the_first_vectors_is_noted_and_goes_on_without_a_word(
    root: Root, minilm: OnnxEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for empty in (True, False):
        require_agreement(root, PLACE, minilm, empty=empty)
    assert engine_noted(root) == minilm.engine
    assert "continued" not in caplog.text


def test_vectors_from_before_engines_were_noted_are_continued_if_they_are_the_same(
    root: Root, minilm: OnnxEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    require_agreement(root, PLACE, minilm, empty=False)
    assert engine_noted(root) == "ONNX Runtime"
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


def test_a_root_notes_its_engine_once_it_encodes(root: Root, minilm: OnnxEncoder) -> None:
    encoder = load_kept_encoder(root.uri, str(minilm._folder))
    for _ in range(2):
        encoder.encode(["Knead the dough."])
    (noted,) = root.files("vectors", ENGINE)
    assert (root.read_json(noted) or {})["engine"] == minilm.engine


TEXT = "Feed the sourdough at six, then turn the oven on."


def test_without_adapters_it_reads_as_the_default_encoder(minilm: OnnxEncoder) -> None:
    read = AdaptedEncoder({}).read(TEXT)
    whole, *parts = minilm.encode_parts(TEXT, read.spans)
    assert read.spans == minilm.offsets(TEXT)
    states = read.states / np.linalg.norm(read.states, axis=1, keepdims=True)
    assert (states * np.stack(parts)).sum(axis=1) == pytest.approx(np.ones(len(states)), abs=1e-3)
    assert whole @ states.mean(axis=0) > 0.5


def test_an_adapter_changes_what_its_matrix_makes() -> None:
    plain = AdaptedEncoder({}).read(TEXT).states
    noise = np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32)
    adapters = {"5.attention.output.dense.a": noise, "5.attention.output.dense.b": noise.T}
    assert np.abs(AdaptedEncoder(adapters).read(TEXT).states - plain).max() > 0.1


def test_a_long_text_has_a_state_for_each_token() -> None:
    encoder = AdaptedEncoder({})
    read = encoder.read("bread " * 600)
    assert read.states.shape == (600, WIDTH)
    assert len(read.spans) == 600
    assert encoder.read("").states.shape == (0, WIDTH)
