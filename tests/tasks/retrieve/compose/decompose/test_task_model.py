"""The task model: words and their states, what pairs of steps are, what a step seeks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.retrieve.compose.decompose.task_model import (
    NEITHER,
    ONWARD,
    TaskModel,
    packaged_model,
    placed_words,
)

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


@settings(deadline=None)
@given(st.text(max_size=60), st.integers(1, 5))
def test_words_lie_in_the_text_in_order(text: str, size: int) -> None:
    tokens = [(at, min(at + size, len(text))) for at in range(0, len(text), size)]
    placed = placed_words(text, tokens)

    assert all(0 <= a < b <= len(text) for (a, b), _ in placed)
    assert [word for word, _ in placed] == sorted(word for word, _ in placed)
    assert all(tokens[place][0] >= a for (a, _), place in placed)
