"""A linear scorer of candidates, fitted by the listwise loss that SkillRouter trains its reranker with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

Features = npt.NDArray[np.float64]


def listwise_loss(
    weights: Features, lists: Sequence[Features], penalty: float = 0.0
) -> tuple[float, Features]:
    """Return the mean listwise cross-entropy and its gradient, shape `(f,)`.

    A list's loss is the negative log-softmax of its first candidate's score among all of the list
    (SkillRouter, equation 2, with its temperature in the weights).

    Args:
        weights: One a feature, shape `(f,)`.
        lists: The features of each list's candidates, shape `(c, f)`; the positive comes first.
        penalty: Of the squared weights.
    """
    loss, gradient = penalty * float(weights @ weights), 2 * penalty * weights
    for features in lists:
        scores = features @ weights
        scores -= scores.max()
        shares = np.exp(scores)
        total = shares.sum()
        loss += (float(np.log(total)) - float(scores[0])) / len(lists)
        gradient = gradient + (shares @ features / total - features[0]) / len(lists)
    return loss, gradient


def fit_listwise(lists: Sequence[Features], penalty: float = 1e-3) -> Features:
    """Return the weights of least listwise loss, shape `(f,)`; the loss is convex, so that they are unique.

    Args:
        lists: As `listwise_loss` has them, at least one.
        penalty: Above 0; keeps weights finite where the features part all lists.
    """
    start = np.zeros(lists[0].shape[1])
    found = minimize(listwise_loss, start, args=(lists, penalty), jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)
