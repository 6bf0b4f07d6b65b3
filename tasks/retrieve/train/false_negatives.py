"""Finds false negatives: skills that serve a query as well as the skill it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.models.protocols import Vectors
from tasks.refine.duplicates.shingles import Hashes, jaccard
from tasks.retrieve.routing.postings import term_sequence
from tasks.retrieve.routing.router import plain_name
from tasks.retrieve.routing.skill import Skill

Layer = Literal["name", "body", "embedding"]
LAYERS: tuple[Layer, ...] = ("name", "body", "embedding")
_CHAIN = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class FalseNegativeSettings:
    """The least similarity, 0 to 1, with which a negative counts as a second positive.

    `body` is the Jaccard similarity of word trigrams, `embedding` the cosine of name and description.
    Without `drop` nothing counts as one.
    """

    # SkillRouter does not give its thresholds; texts that share half of their trigrams are versions of one.
    body: float = 0.5
    embedding: float = 0.9
    drop: bool = True


class FalseNegatives:
    """SkillRouter's filter of false negatives in three layers (section 4.2).

    `vectors`, shape `(n, d)`, are unit vectors of name and description by row.
    """

    def __init__(self, skills: Sequence[Skill], vectors: Vectors, settings: FalseNegativeSettings) -> None:
        self._skills, self._vectors, self._settings = skills, vectors, settings
        self._trigrams: dict[int, Hashes] = {}

    def layer(self, positive: int, candidate: int) -> Layer | None:
        """Return the first layer in which a candidate is a second positive, None for a true negative."""
        if not self._settings.drop:
            return None
        if plain_name(self._skills[positive].name) == plain_name(self._skills[candidate].name):
            return "name"
        if jaccard(self._of(positive), self._of(candidate)) >= self._settings.body:
            return "body"
        if float(self._vectors[positive] @ self._vectors[candidate]) >= self._settings.embedding:
            return "embedding"
        return None

    def _of(self, row: int) -> Hashes:
        if row not in self._trigrams:
            self._trigrams[row] = trigrams(self._skills[row].body)
        return self._trigrams[row]


def trigrams(text: str) -> Hashes:
    """Return the set of a text's word trigrams as sorted, unique hashes; empty below three words."""
    terms = np.array(term_sequence(text), dtype=np.uint64)
    return np.unique((terms[:-2] * _CHAIN + terms[1:-1]) * _CHAIN + terms[2:])
