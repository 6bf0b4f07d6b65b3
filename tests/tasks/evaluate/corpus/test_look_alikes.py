from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluate.corpus import look_alikes as module
from tasks.evaluate.corpus.look_alikes import look_alikes

Vectors = npt.NDArray[np.float32]


def unit(*angles: float) -> Vectors:
    """Return unit vectors of the plane, by their angles in degrees."""
    turned = np.radians(angles)
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_pairs_at_or_above_the_threshold_are_found_the_most_similar_first() -> None:
    found = look_alikes(["c", "a", "b", "far"], unit(0, 10, 12, 120), threshold=float(np.cos(np.radians(11))))
    assert found.pairs.select("doc_id", "other").rows() == [("a", "b"), ("a", "c")]
    assert found.pairs["similarity"].to_list() == pytest.approx(np.cos(np.radians([2, 10])), abs=1e-6)
    assert found.groups == (("a", "b", "c"),)
    assert not found.truncated


def test_groups_come_largest_first_and_strangers_are_in_none() -> None:
    found = look_alikes([*"abcdef"], unit(0, 1, 90, 91, 92, 200), threshold=0.99)
    assert found.groups == (("c", "d", "e"), ("a", "b"))
    assert found.documents == 6


def test_equal_vectors_are_found_at_threshold_one() -> None:
    rng = np.random.default_rng(7)
    row = rng.normal(size=384)
    row = (row / np.linalg.norm(row)).astype(np.float32)
    found = look_alikes(["a", "b"], np.stack([row, row]), threshold=1.0)
    assert found.pairs.rows() == [("a", "b", pytest.approx(1.0, abs=1e-5))]


def test_no_skills_have_no_look_alikes() -> None:
    found = look_alikes([], np.zeros((0, 384), np.float32), threshold=0.9)
    assert (found.documents, found.pairs.height, found.groups) == (0, 0, ())


def test_too_many_pairs_are_cut_off_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PAIRS", 5)
    found = look_alikes([*"abcdef"], unit(0, 0, 0, 0, 0, 0), threshold=0.9)
    assert (found.pairs.height, found.truncated) == (5, True)


@given(st.lists(st.integers(0, 359), min_size=0, max_size=40), st.sampled_from([0.5, 0.9, 0.999]))
def test_all_pairs_are_compared_whatever_the_block(angles: list[int], threshold: float) -> None:
    names, vectors = [f"{n:02d}" for n in range(len(angles))], unit(*angles)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_ROWS_AT_ONCE", 7)
        found = look_alikes(names, vectors, threshold=threshold)
    cosines = vectors @ vectors.T
    near = {
        (names[i], names[j])
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if cosines[i, j] >= threshold
    }
    got = set(found.pairs.select("doc_id", "other").rows())
    assert all(abs(cosines[int(a), int(b)] - threshold) < 1e-5 for a, b in got ^ near)
