"""The chain's decoding against all labellings of short requests."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.decompose.chain import BEGIN, INSIDE, LABELS, Scores, counted


def all_labellings(own: Scores, moves: Scores) -> dict[tuple[int, ...], float]:
    """Return the score of each labelling in which no word continues a step before one has begun."""
    return {
        labels: float(own[range(len(own)), labels].sum() + sum(moves[pair] for pair in pairwise(labels)))
        for labels in itertools.product(range(LABELS), repeat=len(own))
        if all(BEGIN in labels[:k] for k, label in enumerate(labels) if label == INSIDE)
    }


@given(st.integers(1, 5), st.integers(0, 10_000))
def test_the_likeliest_count_is_found_and_its_best_labels(length: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    own, moves = draw.normal(size=(length, LABELS)), draw.normal(size=(LABELS, LABELS))
    scores = all_labellings(own, moves)
    by_count = {
        n: np.logaddexp.reduce([s for labels, s in scores.items() if labels.count(BEGIN) == n])
        for n in {labels.count(BEGIN) for labels in scores}
    }
    count = max(by_count, key=lambda n: by_count[n])
    best = max(
        (labels for labels in scores if labels.count(BEGIN) == count), key=lambda labels: scores[labels]
    )

    found = counted(own, moves, most=8)

    assert (found.likeliest(), found.labels(count)) == (count, best)
    assert found.shares.sum() == pytest.approx(1)
    total = np.logaddexp.reduce(list(by_count.values()))
    assert found.shares[count] == pytest.approx(np.exp(by_count[count] - total))


def test_no_more_steps_than_asked_for() -> None:
    found = counted(np.tile([5.0, 0.0, 0.0], (6, 1)), np.zeros((3, 3)), most=2)

    assert found.labels(found.likeliest()).count(BEGIN) == 2


@given(st.integers(1, 5), st.integers(0, 10_000), st.integers(0, 7))
def test_a_known_number_of_steps_has_the_best_labels_of_that_number(
    length: int, seed: int, wanted: int
) -> None:
    draw = np.random.default_rng(seed)
    own, moves = draw.normal(size=(length, LABELS)), draw.normal(size=(LABELS, LABELS))
    every = all_labellings(own, moves)
    scores = {labels: s for labels, s in every.items() if labels.count(BEGIN) == min(wanted, length)}
    found = counted(own, moves, most=8)

    assert found.labels(found.nearest(wanted)) == max(scores, key=lambda key: scores[key])
