"""Listwise training of rerankers: rows of candidate lists, and a linear scorer fitted by listwise loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.hard_negatives import Negative
from tasks.retrieve.train.queries import TrainingQuery
from tasks.retrieve.train.rows import TextOf

Features = npt.NDArray[np.float64]


def list_rows(
    skills: Sequence[Skill],
    queries: Sequence[TrainingQuery],
    lists: Sequence[Sequence[Negative]],
    text: TextOf,
) -> list[tuple[str, ...]]:
    """Return rows of query, positive and all other candidates; lists shorter than the longest have no row."""
    longest = max(map(len, lists), default=0)
    return [
        (
            query.text,
            text(query.without_passages(skills[query.row])),
            *(text(skills[n.row]) for n in candidates),
        )
        for query, candidates in zip(queries, lists, strict=True)
        if len(candidates) == longest
    ]


def listwise_loss(
    weights: Features, lists: Sequence[Features], penalty: float = 0.0
) -> tuple[float, Features]:
    """Return the mean listwise cross-entropy and its gradient, shape `(f,)`.

    A list's loss is the negative log-softmax of its first candidate's score among the whole list
    (SkillRouter, equation 2; the weights include its temperature).

    Args:
        weights: One per feature, shape `(f,)`.
        lists: The features of each list's candidates, shape `(c, f)`; the positive comes first.
        penalty: The factor of the squared weights in the loss, at least 0.
    """
    loss, gradient = penalty * float(weights @ weights), 2 * penalty * weights
    for features in lists:
        scores = features @ weights
        scores -= scores.max()  # exp of large scores would overflow
        shares = np.exp(scores)
        total = shares.sum()
        loss += (float(np.log(total)) - float(scores[0])) / len(lists)
        gradient = gradient + (shares @ features / total - features[0]) / len(lists)
    return loss, gradient


def fit_listwise(lists: Sequence[Features], penalty: float = 1e-3) -> Features:
    """Return the weights of the least listwise loss, shape `(f,)`; it is convex, so they are unique.

    Args:
        lists: As in `listwise_loss`, at least one.
        penalty: Above 0; keeps weights finite if a feature separates every list.
    """
    start = np.zeros(lists[0].shape[1])
    found = minimize(listwise_loss, start, args=(lists, penalty), jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)
