"""The chain's decoding against all labellings of short requests."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.decompose.chain import BEGIN, INSIDE, LABELS, decode


def allowed(labels: tuple[int, ...]) -> bool:
    """Tell whether no clause continues a step before one has begun."""
    return all(BEGIN in labels[:k] for k, label in enumerate(labels) if label == INSIDE)


@given(st.integers(1, 5), st.integers(0, 10_000))
def test_the_likeliest_count_is_found_and_its_best_labels(length: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    unary, pairs = draw.normal(size=(length, LABELS)), draw.normal(size=(length, LABELS, LABELS))
    scores = {
        labels: unary[range(length), labels].sum()
        + sum(pairs[k, labels[k - 1], labels[k]] for k in range(1, length))
        for labels in itertools.product(range(LABELS), repeat=length)
        if allowed(labels)
    }
    by_count = {
        n: np.logaddexp.reduce([s for labels, s in scores.items() if labels.count(BEGIN) == n])
        for n in {labels.count(BEGIN) for labels in scores}
    }
    count = max(by_count, key=lambda n: by_count[n])
    best = max(
        (labels for labels in scores if labels.count(BEGIN) == count), key=lambda labels: scores[labels]
    )

    found = decode(unary, pairs, most=8)

    assert found.labels == best
    assert sum(found.counts) == pytest.approx(1)
    total = np.logaddexp.reduce(list(by_count.values()))
    assert found.counts[count] == pytest.approx(np.exp(by_count[count] - total))


def test_no_more_steps_than_asked_for() -> None:
    unary = np.tile([5.0, 0.0, 0.0], (6, 1))

    assert decode(unary, np.zeros((6, 3, 3)), most=2).labels.count(BEGIN) == 2


@given(st.integers(1, 5), st.integers(0, 10_000), st.integers(0, 7))
def test_a_known_number_of_steps_has_the_best_labels_of_that_number(
    length: int, seed: int, wanted: int
) -> None:
    draw = np.random.default_rng(seed)
    unary, pairs = draw.normal(size=(length, LABELS)), draw.normal(size=(length, LABELS, LABELS))
    scores = {
        labels: unary[range(length), labels].sum()
        + sum(pairs[k, labels[k - 1], labels[k]] for k in range(1, length))
        for labels in itertools.product(range(LABELS), repeat=length)
        if allowed(labels) and labels.count(BEGIN) == min(wanted, length)
    }

    assert decode(unary, pairs, most=8, exactly=wanted).labels == max(scores, key=lambda key: scores[key])
