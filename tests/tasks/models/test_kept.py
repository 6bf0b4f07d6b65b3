from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.root import Root
from storage.vectors import vector_stores
from tasks.models.kept import KeptEncoder, load_kept_encoder, vectors_of
from tests.skill_root import CountingEncoder, Export

TEXTS = ["Knead the dough.", "Open the hive.", "Knead the dough.", ""]


@pytest.fixture
def counting(minilm_export: Export) -> CountingEncoder:
    return CountingEncoder(minilm_export.folder)


def kept(root: Root, counting: CountingEncoder) -> KeptEncoder:
    return KeptEncoder(counting, vectors_of(root, counting.card))


def test_equal_texts_are_encoded_once_and_never_again(tmp_path: Path, counting: CountingEncoder) -> None:
    root = Root(tmp_path)

    first = kept(root, counting).encode(TEXTS)
    assert counting.encoded == ["Knead the dough.", "Open the hive.", ""]
    again = kept(root, counting).encode([*TEXTS, "Light the smoker."])

    assert counting.encoded[3:] == ["Light the smoker."]
    assert np.array_equal(again[:4], first)
    assert np.array_equal(first, CountingEncoder(counting._folder).encode(TEXTS))


def test_no_texts_give_no_vectors(tmp_path: Path, counting: CountingEncoder) -> None:
    assert kept(Root(tmp_path), counting).encode([]).shape == (0, 384)
    assert counting.encoded == []


@pytest.mark.parametrize("changed", [{"revision": "other"}, {"max_tokens": 128}, {"pooling": "cls"}])
def test_whatever_changes_a_vector_has_vectors_of_its_own(
    tmp_path: Path, counting: CountingEncoder, changed: dict[str, object]
) -> None:
    root = Root(tmp_path)
    kept(root, counting).encode(TEXTS)
    counting.card = {**counting.card, **changed}

    kept(root, counting).encode(["Knead the dough."])

    assert counting.encoded.count("Knead the dough.") == 2
    assert len(vector_stores(root)) == 2


def test_it_counts_tokens_as_the_encoder_inside_does(tmp_path: Path, counting: CountingEncoder) -> None:
    encoder = kept(Root(tmp_path), counting)

    assert encoder.count(TEXTS) == counting.count(TEXTS)
    assert encoder.offsets(TEXTS[0]) == counting.offsets(TEXTS[0])
    assert encoder.card == counting.card


def test_it_is_loaded_once_a_process(tmp_path: Path, minilm_export: Export) -> None:
    arguments = str(tmp_path), str(minilm_export.folder)

    assert load_kept_encoder(*arguments) is load_kept_encoder(*arguments)
