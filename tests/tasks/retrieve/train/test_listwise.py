from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from tasks.retrieve.train.rows import fit_listwise, listwise_loss


def lists_of(seed: int, lists: int, width: int, informed: float = 1.0) -> list[np.ndarray]:
    """Return lists whose first candidate has more of the first feature, and of the second as the rest."""
    draw = np.random.default_rng(seed)
    made = [draw.normal(size=(draw.integers(2, 9), width)) for _ in range(lists)]
    for one in made:
        one[0, 0] += informed
    return made


def test_without_weights_a_list_costs_the_logarithm_of_its_length() -> None:
    assert listwise_loss(np.zeros(2), [np.ones((5, 2))])[0] == pytest.approx(math.log(5))


def test_the_loss_is_the_cross_entropy_of_the_first_candidate() -> None:
    features = np.array([[2.0], [1.0], [0.0]])

    loss, _ = listwise_loss(np.array([1.0]), [features])

    assert loss == pytest.approx(-math.log(math.e**2 / (math.e**2 + math.e + 1)))


@given(st.integers(0, 100), st.floats(0, 1))
def test_the_gradient_is_that_of_the_loss(seed: int, penalty: float) -> None:
    lists, at = lists_of(seed, 4, 3), np.random.default_rng(seed).normal(size=3)

    wrong = check_grad(
        lambda w: listwise_loss(w, lists, penalty)[0], lambda w: listwise_loss(w, lists, penalty)[1], at
    )

    assert wrong < 1e-5


def test_what_tells_the_positive_gets_weight_and_what_does_not_gets_little() -> None:
    lists = lists_of(0, 400, 2)

    weights = fit_listwise(lists)

    assert weights[0] > 0.7
    assert abs(weights[1]) < 0.2
    assert listwise_loss(weights, lists)[0] < listwise_loss(np.zeros(2), lists)[0]
    np.testing.assert_array_equal(weights, fit_listwise(lists))


def test_lists_that_can_be_parted_get_finite_weights() -> None:
    weights = fit_listwise([np.array([[1.0], [0.0]])] * 3)

    assert 1 < weights[0] < 100


def test_huge_scores_do_not_overflow() -> None:
    loss, gradient = listwise_loss(np.array([1e3]), [np.array([[0.0], [5.0]])])

    assert loss == pytest.approx(5e3)
    assert gradient.tolist() == [5.0]
