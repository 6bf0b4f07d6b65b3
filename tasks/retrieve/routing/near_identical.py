"""Folds near-identical skills: of a skill and its copies only the best takes a rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.postings import Sketches

# Of bins of the sketches; the share estimates the Jaccard similarity of the texts' terms within 0.05.
_SAME_TERMS = 0.85
# Skills made from one template share most terms and differ in what they are for, which descriptions say.
_SAME_NEED = 0.95


class NearIdentical:
    """Tells which rows are near-identical.

    Args:
        sketches: Of the rows' terms, shape `(rows, bins)`.
        vectors: Unit vectors of name and description, shape `(rows, dimension)`.
    """

    def __init__(self, sketches: Sketches, vectors: Vectors) -> None:
        self._sketches, self._vectors = sketches, vectors

    def folded(self, rows: Sequence[int]) -> list[list[int]]:
        """Return rows in groups: one not near-identical to any before it, then those that are to it."""
        leaders: list[int] = []
        groups: list[list[int]] = []
        for row in rows:
            at = self._like(row, leaders)
            if at is None:
                leaders.append(row)
                groups.append([row])
            else:
                groups[at].append(row)
        return groups

    def _like(self, row: int, leaders: list[int]) -> int | None:
        if not leaders:
            return None
        own, others = self._sketches[row], self._sketches[leaders]
        filled = (own != _EMPTY) | (others != _EMPTY)
        alike = ((own == others) & filled).sum(axis=1) >= _SAME_TERMS * np.maximum(filled.sum(axis=1), 1)
        alike &= self._vectors[leaders] @ self._vectors[row] >= _SAME_NEED
        found = np.flatnonzero(alike)
        return int(found[0]) if len(found) else None


_EMPTY = np.iinfo(np.uint32).max
