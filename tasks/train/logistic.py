"""Logistic models: conditional logit over options, and logistic regression with bounds on its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

Numbers = npt.NDArray[np.float64]
_SPREAD = 1e-9  # below it a feature is the same in all rows, and is not scaled


@dataclass(frozen=True, slots=True)
class Choice:
    """Options with features, shape `(options, features)`, and which of them are right, `(options,)`."""

    features: Numbers
    right: npt.NDArray[np.bool_]


def fit_choice(given: Sequence[Choice], penalty: float, *, scaled: bool = True) -> Numbers:
    """Return the weights under which the right options are likeliest (conditional logit), in features' units.

    With one right option each, the loss is SkillRouter's listwise cross-entropy (equation 2, its temperature
    in the weights). Choices without a right option teach nothing. The penalty, above 0 so that weights stay
    finite, is on squared weights; of standardised features if they are `scaled`.
    """
    told = [one for one in given if one.right.any()]
    rows = np.concatenate([one.features for one in told])
    scale = rows.std(axis=0) + 1e-6 if scaled else np.ones(rows.shape[1])
    rows = rows / scale
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


def fit_chance(
    features: Numbers, right: npt.NDArray[np.bool_], penalty: float, counts: Numbers | None = None,
    rising: Sequence[int] = (),
) -> Numbers:  # fmt: skip
    """Return the weights of a logistic regression; the first feature is the constant, without penalty.

    scikit-learn's has no bounds. `counts` says how much each row counts, all the same if not given; the
    weights of the features `rising` are 0 at least.
    """
    share = np.full(len(right), 1 / len(right)) if counts is None else counts / counts.sum()
    spread = features.std(axis=0)
    scale = np.where(spread > _SPREAD, spread, 1.0)
    rows, kept = features / scale, np.r_[0.0, np.ones(features.shape[1] - 1)]

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        scores = rows @ weights
        value = np.logaddexp(0, scores) - right * scores
        slope = rows.T @ (share * (expit(scores) - right))
        held = kept * weights
        return float(share @ value + penalty * held @ held), slope + 2 * penalty * held

    least = [(0 if place in rising else None, None) for place in range(rows.shape[1])]
    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", bounds=least)
    return np.asarray(found.x / scale)
