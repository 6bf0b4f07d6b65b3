"""Rows of training data: each query with the text of its skill and of skills that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from tasks.models.protocols import Tokenizer
from tasks.retrieve.baselines.skillrouter import flat_text
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.hard_negatives import Negative
from tasks.retrieve.train.queries import TrainingQuery, without_queries

TextForm = Literal["description", "flat"]
TextOf = Callable[[Skill], str]
Features = npt.NDArray[np.float64]
_DESCRIPTION_SHARE = 0.5  # of the tokens of a flat text


class TrainingRow(NamedTuple):
    """A query by position, the rows of its positive and negatives, and the texts of query and these."""

    query: int
    skills: tuple[int, ...]
    texts: tuple[str, ...]


def text_form(form: TextForm, tokens: int, tokenizer: Tokenizer) -> TextOf:
    """Return a function that makes the text of a skill.

    `description` is name and description as they are indexed. `flat` is SkillRouter's form,
    `name | description | body`, of so many tokens at most, half of them for the description.
    """
    if form == "description":
        return lambda skill: skill.head
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
) -> list[TrainingRow]:
    """Return rows of query, positive and `drawn` of its negatives; each epoch draws and shuffles again.

    A query with fewer negatives has no row. `text` makes the text of a skill, which is read without the
    passages that queries were made of.
    """
    rows, read = list[TrainingRow](), without_queries(skills, queries)
    for _ in range(epochs):
        for at in draw.permutation(len(queries)).tolist():
            query, found = queries[at], negatives[at]
            if len(found) >= drawn:
                chosen = draw.choice(len(found), drawn, replace=False).tolist()
                own = (query.row, *(found[i].row for i in chosen))
                rows.append(TrainingRow(at, own, (query.text, *(text(read[row]) for row in own))))
    return rows


def list_rows(
    skills: Sequence[Skill],
    queries: Sequence[TrainingQuery],
    lists: Sequence[Sequence[Negative]],
    text: TextOf,
) -> list[tuple[str, ...]]:
    """Return rows of query, positive and all other candidates, for the lists of the greatest length.

    Skills are read as `training_rows` reads them.
    """
    read = without_queries(skills, queries)
    longest = max(map(len, lists), default=0)
    rows = []
    for query, candidates in zip(queries, lists, strict=True):
        if len(candidates) == longest:
            positive = text(read[query.row])
            rows.append((query.text, positive, *(text(read[n.row]) for n in candidates)))
    return rows


def listwise_loss(
    weights: Features, lists: Sequence[Features], penalty: float = 0.0
) -> tuple[float, Features]:
    """Return the mean listwise cross-entropy and its gradient, shape `(f,)`.

    A list's loss is the negative log-softmax of its first candidate's score among all of the list
    (SkillRouter, equation 2, with its temperature in the weights). Each list has the features of its
    candidates, shape `(c, f)`, the positive first; `penalty` is that of the squared weights.
    """
    loss, gradient = penalty * float(weights @ weights), 2 * penalty * weights
    for features in lists:
        scores = features @ weights
        scores -= scores.max()  # keeps the exponentials finite, and changes no share
        shares = np.exp(scores)
        total = shares.sum()
        loss += (float(np.log(total)) - float(scores[0])) / len(lists)
        gradient = gradient + (shares @ features / total - features[0]) / len(lists)
    return loss, gradient


def fit_listwise(lists: Sequence[Features], penalty: float = 1e-3) -> Features:
    """Return the weights of least listwise loss, shape `(f,)`; the loss is convex, so they are unique.

    There is at least one list. A penalty above 0 keeps weights finite if the features separate all lists.
    """
    start = np.zeros(lists[0].shape[1])
    found = minimize(listwise_loss, start, args=(lists, penalty), jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)
