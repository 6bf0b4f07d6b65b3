"""Fits: the option that is right by one feature is found, and chances are calibrated."""

from __future__ import annotations

import numpy as np

from tasks.retrieve.compose.ranking import CONFIDENCE_FEATURES as OF_CONFIDENCE
from tasks.retrieve.compose.ranking import RANKING_FEATURES as OF_RANKING
from tasks.retrieve.compose.ranking import fitted
from tasks.retrieve.compose.rounds import FEEDBACK_FEATURES as OF_FEEDBACK
from tasks.retrieve.train.composing import auroc
from tasks.retrieve.train.fitting import Choice, fit_chance, fit_choice, labelled_pairs, train_pairs
from tasks.retrieve.train.written import read_written


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


def test_auroc_is_the_share_of_pairs_in_order() -> None:
    assert auroc(np.array([3.0, 2.0]), np.array([1.0, 2.5])) == 0.75


def test_the_packaged_weights_are_of_the_features_that_are_read() -> None:
    held = {model: tuple(weights) for model, weights in fitted().items()}

    assert held == {
        "feedback": OF_FEEDBACK, "ranking": OF_RANKING, "confidence": OF_CONFIDENCE, "gap": ("least",),
    }  # fmt: skip


def test_pairs_of_steps_are_told_by_their_words() -> None:
    names, labels = labelled_pairs(read_written()[:150])
    model = train_pairs(names, labels)
    guessed = [int(np.argmax(model.shares(own))) for own in names]

    assert np.mean(np.array(guessed) == np.array(labels)) > np.mean(np.array(labels) == 1)
