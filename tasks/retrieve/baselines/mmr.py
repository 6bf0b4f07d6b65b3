"""Maximal marginal relevance (MMR) over one document's nodes (SkillPager, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.retrieve.paging.terms import Floats


def mmr_order(
    relevance: Floats, vectors: Floats, *, relevance_weight: float = 0.7, stop_below: float | None = 0.0
) -> Iterator[tuple[int, float]]:
    """Pick items, each time the one with the highest marginal value given those picked before.

    The marginal value of item `n` is `w * relevance[n] - (1 - w) * max(vectors[s] @ vectors[n])` over the
    items `s` picked so far, and `w * relevance[n]` while there are none (SkillPager, equation 2). A step
    costs O(n * d). Ties go to the lower index. Yielded are `(index, marginal value)` of the items in turn.

    Args:
        relevance: Similarity of each item to the query, shape `(n,)`.
        vectors: One unit vector for each item, shape `(n, d)`.
        relevance_weight: `w` in [0, 1]: 1 ranks by relevance alone; 0 only avoids what is picked already.
        stop_below: End when the best marginal value left is below this (equation 3); None never ends early.

    Raises:
        ValueError: The shapes disagree, a number is not finite, or `relevance_weight` is out of range.
    """
    if relevance.ndim != 1 or vectors.ndim != 2 or len(relevance) != len(vectors):
        msg = f"relevance must be (n,) and vectors (n, d), got {relevance.shape} and {vectors.shape}"
        raise ValueError(msg)
    if not 0 <= relevance_weight <= 1:
        msg = f"relevance_weight must be in [0, 1], got {relevance_weight}"
        raise ValueError(msg)
    if not (np.isfinite(relevance).all() and np.isfinite(vectors).all()):
        msg = f"relevance {relevance.shape} and vectors {vectors.shape} must be finite"
        raise ValueError(msg)
    return _steps(relevance, vectors, relevance_weight, stop_below)


def node_budget(n_nodes: int) -> int:
    """Return how many nodes to pick of a document with `n_nodes`: 20 up to 100, else 60 (equation 4)."""
    return 20 if n_nodes <= 100 else 60


def _steps(
    relevance: Floats, vectors: Floats, relevance_weight: float, stop_below: float | None
) -> Iterator[tuple[int, float]]:
    gain = relevance_weight * relevance
    value = gain
    redundancy = np.full_like(gain, -np.inf)
    for _ in range(len(gain)):
        best = int(np.argmax(value))
        if stop_below is not None and value[best] < stop_below:
            return
        yield best, float(value[best])
        gain[best] = -np.inf
        np.maximum(redundancy, vectors @ vectors[best], out=redundancy)
        value = gain - (1 - relevance_weight) * redundancy
