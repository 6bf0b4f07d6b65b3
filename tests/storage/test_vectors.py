from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import StorageError
from storage.root import Root
from storage.vectors import ROWS_PER_PART, StateStore, VectorStore, state_stores, text_hash, vector_stores


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def hashes(*texts: str) -> list[bytes]:
    return [text_hash(text) for text in texts]


def vectors(*firsts: float) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array([[first, 0.5] for first in firsts], dtype=np.float32)


def test_vectors_are_found_by_text_and_unknown_ones_are_not(root: Root) -> None:
    VectorStore(root, "m", 2).add(hashes("knead", "bake"), vectors(1, 2))
    found, held = VectorStore(root, "m", 2).find(hashes("bake", "eat", "knead", "bake"))
    assert found.tolist() == [True, False, True, True]
    assert held[:, 0].tolist() == [2, 0, 1, 2]


def test_states_are_bytes_and_those_of_unknown_texts_are_empty(root: Root) -> None:
    StateStore(root, "m", 2).add(hashes("knead", "rest"), np.array([b"\x01\x02", b""], dtype=object))
    found, held = StateStore(root, "m", 2).find(hashes("rest", "eat", "knead"))
    assert found.tolist() == [True, False, True]
    assert held.tolist() == [b"", b"", b"\x01\x02"]


def test_states_and_vectors_of_a_model_lie_apart_and_are_bounded_apart(root: Root) -> None:
    states, kept = StateStore(root, "m", 2), VectorStore(root, "m", 2)
    states.add(hashes("knead", "bake"), np.array([b"a", b"b"], dtype=object))
    kept.add(hashes("knead"), vectors(1))
    assert [store.folder for store in state_stores(root)] == ["states/m-2"]
    assert [store.folder for store in vector_stores(root)] == ["vectors/m-2"]
    assert (states.keep_only(hashes("bake")), len(states), len(kept)) == (1, 1, 1)
    assert states.find(hashes("bake"))[1].tolist() == [b"b"]


def test_nothing_is_found_where_nothing_was_added(root: Root) -> None:
    store = VectorStore(root, "m", 2)
    found, held = store.find(hashes("knead"))
    store.add([], vectors()[:0].reshape(0, 2))
    assert (found.tolist(), held.shape, len(store)) == ([False], (1, 2), 0)
    assert store.find([])[1].shape == (0, 2)


def test_models_do_not_share_vectors(root: Root) -> None:
    VectorStore(root, "one", 2).add(hashes("knead"), vectors(1))
    assert not VectorStore(root, "two", 2).find(hashes("knead"))[0].any()
    assert [store.folder for store in vector_stores(root)] == ["vectors/one-2"]


def test_what_another_process_adds_or_drops_shows(root: Root) -> None:
    here, there = VectorStore(root, "m", 2), VectorStore(root, "m", 2)
    here.add(hashes("knead"), vectors(1))
    assert there.find(hashes("knead"))[0].all()
    there.add(hashes("bake"), vectors(2))
    assert here.find(hashes("knead", "bake"))[0].all()
    there.keep_only(hashes("bake"))
    assert here.find(hashes("knead", "bake"))[0].tolist() == [False, True]


@settings(max_examples=30)
@given(added=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=5), kept=st.sets(st.integers(0, 30)))
def test_what_is_kept_stays_as_it_is_and_all_else_goes(
    tmp_path_factory: pytest.TempPathFactory, added: list[list[int]], kept: set[int]
) -> None:
    store = VectorStore(Root(tmp_path_factory.mktemp("root")), "m", 2)
    for numbers in added:
        store.add(hashes(*map(str, numbers)), vectors(*numbers).reshape(-1, 2))
    before = len(store)
    held = {n for numbers in added for n in numbers}
    dropped = store.keep_only(hashes(*map(str, kept)))
    found, left = store.find(hashes(*map(str, range(31))))
    assert set(np.flatnonzero(found).tolist()) == held & kept
    assert left[found][:, 0].tolist() == sorted(held & kept)
    assert len(store) == before - dropped == len(held & kept)


def test_small_parts_are_joined_and_large_ones_left_alone(root: Root) -> None:
    store = VectorStore(root, "m", 2)
    many = [f"grain {i}" for i in range(ROWS_PER_PART + 5)]
    store.add(hashes(*many), np.zeros((len(many), 2), np.float32))
    store.add(hashes("bake"), vectors(1))
    large = max(root.folder.rglob("*.parquet"), key=lambda p: p.stat().st_size)
    before = large.stat().st_mtime_ns
    store.keep_only(hashes(*many, "bake"))
    assert len([*root.folder.rglob("*.parquet")]) == 2
    assert large.stat().st_mtime_ns == before
    assert len(store) == len(many) + 1


def test_no_text_is_in_any_file(root: Root) -> None:
    VectorStore(root, "m", 2).add(hashes("sourdough"), vectors(1))
    assert not any(b"sourdough" in path.read_bytes() for path in root.folder.rglob("*.parquet"))


def test_a_damaged_part_is_named_with_what_to_do(root: Root) -> None:
    VectorStore(root, "m", 2).add(hashes("knead"), vectors(1))
    (part,) = root.folder.rglob("*.parquet")
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(StorageError, match=rf"{part.name} .*delete that file"):
        VectorStore(root, "m", 2).find(hashes("knead"))
