"""Where the terms of a request occur in a body, counted without taking the whole text into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# How much longer than a term's stem a word may be; a short term stands alone or in the plural.
_SUFFIX = 5
_SHORT = 3


def lowered(body: str) -> str:
    """Return a body in lower case, every character in its place."""
    lower = body.lower()
    if len(lower) == len(body):
        return lower
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in body)


def occurrences(body: str, lower: str, term: str) -> Iterator[int]:
    """Yield where words begin that start with a stem; a capital inside a name begins a word too."""
    if not term.isascii():
        yield from _anywhere(lower, term)
        return
    longest = 1 if len(term) <= _SHORT else _SUFFIX
    for at in _anywhere(lower, term):
        if at and lower[at - 1].isalnum() and not _begins_inside(body, lower, at):
            continue
        end = at + len(term)
        rest = end
        while rest < len(lower) and rest - end <= longest and "a" <= lower[rest] <= "z":
            if rest > end and "A" <= body[rest] <= "Z":
                break
            rest += 1
        if rest - end <= longest:
            yield at


def _begins_inside(body: str, lower: str, at: int) -> bool:
    before, here = body[at - 1], body[at]
    return (here != lower[at] and before == lower[at - 1]) or before.isdigit() != here.isdigit()


def _anywhere(lower: str, term: str) -> Iterator[int]:
    at = lower.find(term)
    while at >= 0:
        yield at
        at = lower.find(term, at + len(term))


def term_counts(body: str, lower: str, terms: Sequence[str], starts: Integers, ends: Integers) -> Floats:
    """Return how often each term occurs in each span, shape `(spans, terms)`; spans ordered and disjoint."""
    counts = np.zeros((len(starts), len(terms)))
    for column, term in enumerate(terms):
        at = np.fromiter(occurrences(body, lower, term), dtype=np.int64)
        place = np.searchsorted(starts, at, side="right") - 1
        inside = place >= 0
        inside[inside] = at[inside] < ends[place[inside]]
        counts[:, column] = np.bincount(place[inside], minlength=len(starts))
    return counts


def rarity(counts: Floats) -> Floats:
    """Return the inverse document frequency of each term over the rows, as BM25 has it, above 0."""
    n = len(counts)
    found = (counts > 0).sum(axis=0)
    weights: Floats = np.log(1 + (n - found + 0.5) / (found + 0.5))
    return weights


def bm25(counts: Floats, lengths: Floats, weights: Floats, *, length_share: float) -> Floats:
    """Return each row's BM25 contributions by term, shape of `counts`, with k1 = 1.2.

    Args:
        counts: How often each term occurs in each row.
        lengths: Of the rows.
        weights: Of the terms.
        length_share: BM25's b.
    """
    relative = lengths / max(float(lengths.mean()), 1.0) if len(lengths) else lengths
    damping = 1.2 * (1 - length_share + length_share * relative)
    contributions: Floats = counts * 2.2 / (counts + damping[:, None]) * weights
    return contributions
