"""Rows that models are trained on: a query, the text of its skill, and that of skills not serving it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tasks.models.protocols import Tokenizer
from tasks.retrieve.baselines.skillrouter import flat_text
from tasks.retrieve.routing.skill import TEMPLATE, Skill
from tasks.retrieve.train.hard_negatives import Negative
from tasks.retrieve.train.queries import TrainingQuery

TextForm = Literal["description", "flat"]
TextOf = Callable[[Skill], str]
_DESCRIPTION_SHARE = 0.5  # the largest share of a flat text's tokens that the description may take


def text_form(form: TextForm, tokens: int, tokenizer: Tokenizer) -> TextOf:
    """Return the function that makes a skill's text: as the index has it, or as SkillRouter does.

    Args:
        form: `description` for name and description, `flat` for `name | description | body`.
        tokens: The most tokens of a flat text.
        tokenizer: Counts tokens.
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
    """Return rows of query, positive and `drawn` of its negatives; each epoch draws and orders them again.

    A query with fewer negatives than `drawn` has no row.

    Args:
        skills: By row.
        queries: One per positive.
        negatives: Of each query.
        text: Makes the text of a skill; the positive's body is given without the passages of its query.
        drawn: Negatives per row.
        epochs: How often each query occurs.
        draw: The source of randomness.
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
