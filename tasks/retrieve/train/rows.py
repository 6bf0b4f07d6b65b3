"""Rows of training data: each query with the text of its skill and of skills that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from tasks.models.protocols import Tokenizer
from tasks.retrieve.baselines.skillrouter import flat_text
from tasks.retrieve.routing.skill import TEMPLATE, Skill
from tasks.retrieve.train.hard_negatives import Negative
from tasks.retrieve.train.queries import TrainingQuery

TextForm = Literal["description", "flat"]
TextOf = Callable[[Skill], str]
_DESCRIPTION_SHARE = 0.5  # of the tokens that a flat text has


def text_form(form: TextForm, tokens: int, tokenizer: Tokenizer) -> TextOf:
    """Return how a skill is read: as it is indexed (`description`), or as SkillRouter has it (`flat`).

    A flat text has so many tokens, at most half of them the description's.
    """
    if form == "description":
        return lambda skill: TEMPLATE.format(name=skill.name, description=skill.description)
    limits = int(_DESCRIPTION_SHARE * tokens), tokens
    return lambda skill: flat_text(skill, limits, tokenizer)


def training_rows(
    skills: Sequence[Skill],
    queries: Sequence[TrainingQuery],
    negatives: Sequence[Sequence[Negative]],
    text: TextOf,
    *,
    drawn: int,
    epochs: int,
    draw: np.random.Generator,
) -> list[tuple[str, ...]]:
    """Return rows of query, positive and `drawn` of its negatives; each epoch draws and orders anew.

    A query without so many negatives has no row. `text` tells how a skill is read; the positive's body is
    read without what is asked.
    """
    rows = []
    for _ in range(epochs):
        for at in draw.permutation(len(queries)).tolist():
            query, found = queries[at], negatives[at]
            if len(found) >= drawn:
                chosen = draw.choice(len(found), drawn, replace=False).tolist()
                positive = text(query.without_passages(skills[query.row]))
                rows.append((query.text, positive, *(text(skills[found[i].row]) for i in chosen)))
    return rows


def list_rows(
    skills: Sequence[Skill],
    queries: Sequence[TrainingQuery],
    lists: Sequence[Sequence[Negative]],
    text: TextOf,
) -> list[tuple[str, ...]]:
    """Return rows of query, positive and all other candidates; only the longest lists have one."""
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


Features = npt.NDArray[np.float64]


def listwise_loss(
    weights: Features, lists: Sequence[Features], penalty: float = 0.0
) -> tuple[float, Features]:
    """Return the mean listwise cross-entropy and its gradient, shape `(f,)`, for weights of that shape.

    A list's loss is the negative log-softmax of its first candidate's score among the whole list
    (SkillRouter, equation 2; the weights include its temperature).

    Args:
        weights: One for each feature.
        lists: The features of each list's candidates, shape `(c, f)`; the positive comes first.
        penalty: The factor of the squared weights, at least 0.
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
    """Return the weights of the least listwise loss, shape `(f,)`; it is convex, so they are unique.

    `lists` are as in `listwise_loss`, at least one; a `penalty` above 0 keeps weights finite.
    """
    start = np.zeros(lists[0].shape[1])
    found = minimize(listwise_loss, start, args=(lists, penalty), jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)
