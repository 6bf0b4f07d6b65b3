from __future__ import annotations

import numpy as np

from tasks.train.logistic import Choice, fit_chance, fit_choice


def test_a_choice_is_learnt_from_the_feature_that_tells() -> None:
    draw = np.random.default_rng(0)
    given = []
    for _ in range(60):
        features = draw.normal(size=(5, 3))
        given.append(Choice(features, features[:, 1] == features[:, 1].max()))
    weights = fit_choice([*given, Choice(draw.normal(size=(4, 3)), np.zeros(4, dtype=bool))], 0.001)
    assert weights[1] > 5 * max(abs(weights[0]), abs(weights[2]))
    assert np.mean([one.right[int(np.argmax(one.features @ weights))] for one in given]) > 0.9


def test_a_chance_is_as_large_as_the_share_that_is_right() -> None:
    draw = np.random.default_rng(0)
    features = np.c_[np.ones(4000), draw.normal(size=4000)]
    right = draw.random(4000) < 1 / (1 + np.exp(-(0.5 + 2 * features[:, 1])))
    weights = fit_chance(features, right, 1e-6)
    assert np.allclose(weights, [0.5, 2.0], atol=0.25)


def test_a_row_counts_as_often_as_it_is_told_to() -> None:
    draw = np.random.default_rng(0)
    features = np.c_[np.ones(300), draw.normal(size=300)]
    right, counts = draw.random(300) < 0.4, draw.integers(0, 4, 300)
    counted = fit_chance(features, right, 0.0, counts.astype(float))
    repeated = fit_chance(np.repeat(features, counts, axis=0), np.repeat(right, counts), 0.0)
    assert np.allclose(counted, repeated, atol=1e-3)


def test_a_weight_that_may_only_rise_is_not_below_nothing() -> None:
    draw = np.random.default_rng(0)
    features = np.c_[np.ones(400), draw.normal(size=(400, 2))]
    right = draw.random(400) < 1 / (1 + np.exp(2 * features[:, 1] - features[:, 2]))
    assert fit_chance(features, right, 1e-6)[1] < -1
    bounded = fit_chance(features, right, 1e-6, rising=[1, 2])
    assert bounded[1] == 0
    assert bounded[2] > 0


def lists_of(seed: int, lists: int, width: int, informed: float = 1.0) -> list[Choice]:
    """Return lists whose first candidate has more of the first feature, and of the second as the rest."""
    draw = np.random.default_rng(seed)
    made = [draw.normal(size=(draw.integers(2, 9), width)) for _ in range(lists)]
    for one in made:
        one[0, 0] += informed
    return [Choice(one, np.arange(len(one)) == 0) for one in made]


def listwise_loss(weights: np.ndarray, lists: list[Choice]) -> float:
    """Return the mean cross-entropy of the first candidate."""
    scores = [one.features @ weights for one in lists]
    return float(np.mean([np.log(np.exp(own).sum()) - own[0] for own in scores]))


def test_what_tells_the_positive_gets_weight_and_what_does_not_gets_little() -> None:
    lists = lists_of(0, 400, 2)
    weights = fit_choice(lists, 1e-3, scaled=False)
    assert weights[0] > 0.7
    assert abs(weights[1]) < 0.2
    np.testing.assert_array_equal(weights, fit_choice(lists, 1e-3, scaled=False))
    # No weights near them have a lower loss.
    for away in 0.02 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
        near = [listwise_loss(w, lists) + 1e-3 * float(w @ w) for w in (weights, weights + away)]
        assert near[0] < near[1]


def test_lists_that_can_be_parted_and_huge_scores_get_finite_weights() -> None:
    for size in (1.0, 1e4):
        parted = Choice(np.array([[size], [0.0]]), np.array([True, False]))
        weights = fit_choice([parted] * 3, 1e-3, scaled=False)
        assert 0 < weights[0] * size < 1000
        assert np.isfinite(weights).all()
