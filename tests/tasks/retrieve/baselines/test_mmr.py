from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.baselines.skillpager import Floats, mmr_order, node_budget

# Eighths keep every product and sum exact, so that ties are ties in any order of computation.
EIGHTHS = st.integers(-8, 8).map(lambda n: n / 8)
WEIGHTS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
STOPS = st.sampled_from([None, 0.0, -0.25])

EAST, NORTH, NORTH_EAST = [1.0, 0.0], [0.0, 1.0], [0.8, 0.6]


def mmr(relevance: Floats, vectors: Floats, *, k: int, **how: Any) -> list[tuple[int, float]]:  # noqa: ANN401
    return list(islice(mmr_order(relevance, vectors, **how), k))


def plain_mmr(
    relevance: list[float], vectors: list[list[float]], k: int, weight: float, stop_below: float | None
) -> list[tuple[int, float]]:
    """Equations 2 and 3 word for word: every similarity anew at every step."""
    picked: list[tuple[int, float]] = []
    while len(picked) < min(k, len(relevance)):
        values = {}
        for n in range(len(relevance)):
            if n not in [s for s, _ in picked]:
                similar = [sum(a * b for a, b in zip(vectors[s], vectors[n], strict=True)) for s, _ in picked]
                values[n] = weight * relevance[n] - (1 - weight) * max(similar, default=0.0)
        best = min(values, key=lambda n: (-values[n], n))
        if stop_below is not None and values[best] < stop_below:
            break
        picked.append((best, values[best]))
    return picked


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[list[float]]]:
    n, d = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    relevance = draw(st.lists(EIGHTHS, min_size=n, max_size=n))
    return relevance, draw(
        st.lists(st.lists(EIGHTHS, min_size=d, max_size=d), min_size=n, max_size=n),
    )


@given(problems(), st.integers(0, 15), WEIGHTS, STOPS)
def test_equals_the_plain_quadratic_reference(
    problem: tuple[list[float], list[list[float]]], k: int, weight: float, stop_below: float | None
) -> None:
    relevance, vectors = problem
    shaped = np.array(vectors, dtype=np.float64).reshape(len(vectors), len(vectors[0]) if vectors else 1)

    picked = mmr(np.array(relevance), shaped, k=k, relevance_weight=weight, stop_below=stop_below)

    assert plain_mmr(relevance, vectors, k, weight, stop_below) == picked


def test_weight_one_ranks_by_relevance_alone() -> None:
    picked = mmr(np.array([0.5, 0.9, 0.7]), np.array([EAST, EAST, EAST]), k=3, relevance_weight=1.0)

    assert picked == [(1, 0.9), (2, 0.7), (0, 0.5)]


def test_weight_zero_only_avoids_what_is_picked_already() -> None:
    relevance, vectors = np.array([0.1, 0.9, 0.2]), np.array([EAST, NORTH_EAST, NORTH])

    picked = mmr(relevance, vectors, k=3, relevance_weight=0.0, stop_below=None)

    assert [index for index, _ in picked] == [0, 2, 1]


def test_a_near_copy_of_the_best_gives_way_to_something_new() -> None:
    relevance, vectors = np.array([0.8, 0.79, 0.5]), np.array([EAST, EAST, NORTH])

    picked = mmr(relevance, vectors, k=2)

    assert [index for index, _ in picked] == [0, 2]
    assert pytest.approx([value for _, value in picked]) == [0.56, 0.35]


def test_ends_when_the_best_left_is_worth_less_than_the_stop() -> None:
    relevance, vectors = np.array([0.8, 0.3]), np.array([EAST, EAST])

    assert len(mmr(relevance, vectors, k=2)) == 1
    assert len(mmr(relevance, vectors, k=2, stop_below=None)) == 2


def test_a_value_equal_to_the_stop_is_still_picked() -> None:
    assert mmr(np.array([0.0]), np.array([EAST]), k=1) == [(0, 0.0)]


def test_the_order_does_not_change_what_it_was_given() -> None:
    relevance, vectors = np.array([0.8, 0.9]), np.array([EAST, NORTH])

    list(mmr_order(relevance, vectors, relevance_weight=1.0))

    assert relevance.tolist() == [0.8, 0.9]


@pytest.mark.parametrize(("nodes", "budget"), [(0, 20), (100, 20), (101, 60), (600, 60)])
def test_the_budget_is_two_tiered(nodes: int, budget: int) -> None:
    assert budget == node_budget(nodes)


@pytest.mark.parametrize(
    ("relevance", "vectors", "message"),
    [
        (np.zeros(3), np.zeros((2, 4)), r"\(3,\) and \(2, 4\)"),
        (np.zeros((3, 1)), np.zeros((3, 4)), r"\(3, 1\)"),
        (np.zeros(3), np.zeros(3), r"\(3,\) and \(3,\)"),
        (np.array([np.nan]), np.zeros((1, 2)), "finite"),
        (np.zeros(1), np.full((1, 2), np.inf), "finite"),
    ],
)
def test_arrays_that_do_not_fit_are_named(relevance: np.ndarray, vectors: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mmr(relevance, vectors, k=1)


@pytest.mark.parametrize("weight", [1.1, -0.1])
def test_a_weight_out_of_range_is_named(weight: float) -> None:
    with pytest.raises(ValueError, match=str(weight)):
        mmr(np.zeros(1), np.zeros((1, 2)), k=1, relevance_weight=weight)
