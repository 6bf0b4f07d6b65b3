"""Fits the small models of compose: the choice among drafts or rows, and how sure of it one may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choice:
    """Options with features, shape `(options, features)`, and which of them are right, `(options,)`."""

    features: Numbers
    right: npt.NDArray[np.bool_]


def fit_choice(given: Sequence[Choice], penalty: float) -> Numbers:
    """Return the weights under which the right options are likeliest (conditional logit), in features' units.

    Choices without a right option teach nothing. The penalty is on squared weights of standardised features.
    """
    told = [one for one in given if one.right.any()]
    scale = np.concatenate([one.features for one in told]).std(axis=0) + 1e-6
    rows = np.concatenate([one.features / scale for one in told])
    right = np.concatenate([one.right for one in told])
    owner = np.repeat(np.arange(len(told)), [len(one.right) for one in told])

    def shares(scores: Numbers) -> tuple[Numbers, Numbers]:
        most = np.full(len(told), -np.inf)
        np.maximum.at(most, owner, scores)
        likely = np.exp(scores - most[owner])
        total = np.bincount(owner, likely)
        return likely / total[owner], np.log(total) + most

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        scores = rows @ weights
        every, total = shares(scores)
        good, best = shares(np.where(right, scores, -1e9))
        slope = rows.T @ (every - good) / len(told) + 2 * penalty * weights
        return float((total - best).mean() + penalty * weights @ weights), slope

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(found.x / scale)


def fit_chance(features: Numbers, right: npt.NDArray[np.bool_], penalty: float) -> Numbers:
    """Return the weights of a logistic regression; the first feature is the constant, without penalty."""
    scale = features.std(axis=0) + 1e-6
    scale[0] = 1.0
    rows, kept = features / scale, np.r_[0.0, np.ones(features.shape[1] - 1)]

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        scores = rows @ weights
        value = np.logaddexp(0, scores) - right * scores
        slope = rows.T @ (1 / (1 + np.exp(-scores)) - right) / len(rows)
        held = kept * weights
        return float(value.mean() + penalty * held @ held), slope + 2 * penalty * held

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(found.x / scale)
