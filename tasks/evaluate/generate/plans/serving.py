"""Serving rows: those that serve a need equally, of the same product or wording, or near copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.evaluate.generate.plans.needs import Found, Need
from tasks.evaluate.generate.plans.products import squashed
from tasks.evaluate.generate.plans.served_rows import ServedRow
from tasks.evaluate.generate.plans.spoken import SpokenNeed

_COPY = 0.9  # cosine from which on two rows are taken to say the same
_SOURCES = frozenset({"find", "check"})


class Serving:
    """Tells which rows serve a need as well as its own row."""

    def __init__(self, rows: Sequence[ServedRow], found: Found) -> None:
        self._rows, self._needs = rows, found.needs
        self._products = [squashed(product or "") for product in found.products]
        vectors = np.array([row.vector for row in rows], dtype=np.float64).reshape(
            len(rows), -1 if rows else 0
        )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._known: dict[tuple[Need, bool], tuple[list[int], list[int]]] = {}
        self._vectors = vectors / np.where(norms > 0, norms, 1)

    def likeness(self, one: int, others: Sequence[int]) -> list[float]:
        """Return the cosine of a row with others by their places, in [-1, 1], to four digits."""
        return [round(float(value), 4) for value in self._vectors[list(others)] @ self._vectors[one]]

    def of(self, one: SpokenNeed) -> tuple[list[int], list[int]]:
        """Return the places of rows whose text serves a need, its own first, and of more that may.

        The former say the same, for the same product where the request names one; the latter are of that
        product, or near copies.
        """
        key = (one.need, one.named)
        if key not in self._known:
            self._known[key] = self._of(one)
        return self._known[key]

    def _of(self, one: SpokenNeed) -> tuple[list[int], list[int]]:
        need = one.need
        product = squashed(need.product or "") if one.named else ""
        same = {n.row for n in self._needs if _alike(n, need)}
        if product:
            same = {row for row in same if self._products[row] == product}
        kin = {row for row, name in enumerate(self._products) if product and name == product}
        everywhere = self.likeness(need.row, range(len(self._rows)))
        kin |= {
            row
            for row, (other, like) in enumerate(zip(self._rows, everywhere, strict=True))
            if like >= _COPY or other.content_hash == self._rows[need.row].content_hash
        }
        first = [need.row, *sorted(same - {need.row})]
        return first, sorted(kin - set(first))


def _alike(one: Need, other: Need) -> bool:
    if one.noun != other.noun or {one.role, other.role} - _SOURCES not in (set(), {other.role}):
        return False
    return set(one.about.lower().split()) >= set(other.about.lower().split())
