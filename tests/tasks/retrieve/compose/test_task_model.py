"""The task model, and the best labels of words for each number of steps."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.local import BEGIN, INSIDE, LABELS, Scores, counted
from tasks.retrieve.compose.task_model import NEITHER, ONWARD, TaskModel, packaged_model, placed_words

TASK = "Look up when the ferry leaves, and once you know it, tell Ida by mail."


@pytest.fixture(scope="module")
def model() -> TaskModel:
    return packaged_model()


def test_each_word_and_sign_of_a_task_has_a_state(model: TaskModel) -> None:
    reading = model.read(TASK)
    assert [TASK[a:b] for a, b in reading.words[:4]] == ["Look", "up", "when", "the"]
    assert reading.states.shape[0] == len(reading.words) == model.labels(reading).shape[0]


def test_the_pooled_state_is_the_mean_of_the_words_in_the_spans(model: TaskModel) -> None:
    reading = model.read(TASK)
    assert np.allclose(reading.pooled([(0, 7)]), reading.states[:2].mean(axis=0))
    assert np.allclose(reading.pooled([]), reading.states.mean(axis=0))


def test_a_pair_of_steps_has_three_probabilities(model: TaskModel) -> None:
    steps = [[(0, 29)], [(53, 69)]]
    shares = model.pairs(model.read(TASK), steps)
    assert shares[0, 1].sum() == pytest.approx(1, abs=1e-5)
    assert not shares[1, 0].any()
    assert shares[0, 1, ONWARD] > shares[0, 1, NEITHER]


def test_what_a_step_seeks_is_a_unit_vector_that_its_context_changes(model: TaskModel) -> None:
    other = "The dentist called. Look up when the ferry leaves."
    one = model.queries(model.read(TASK), [[(0, 29)]])
    two = model.queries(model.read(other), [[(20, 49)]])
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert 0.3 < float(one[0] @ two[0]) < 0.9999


@given(st.text(max_size=60), st.integers(1, 5))
def test_words_lie_in_the_text_in_order(text: str, size: int) -> None:
    tokens = [(at, min(at + size, len(text))) for at in range(0, len(text), size)]
    placed = placed_words(text, tokens)
    assert all(0 <= a < b <= len(text) for (a, b), _ in placed)
    assert [word for word, _ in placed] == sorted(word for word, _ in placed)
    assert all(tokens[place][0] >= a for (a, _), place in placed)


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
