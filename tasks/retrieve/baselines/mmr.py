"""Maximal marginal relevance (MMR) over one document's nodes (SkillPager, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tasks.retrieve.paging.terms import Floats


def mmr(
    relevance: Floats,
    vectors: Floats,
    *,
    k: int,
    relevance_weight: float = 0.7,
    stop_below: float | None = 0.0,
) -> list[tuple[int, float]]:
    """Pick up to `k` items, each time the one with the highest marginal value given those picked before.

    The marginal value of item `n` is `w * relevance[n] - (1 - w) * max(vectors[s] @ vectors[n])` over the
    items `s` picked so far, and `w * relevance[n]` while there are none (SkillPager, equation 2). A step
    costs O(n * d). Ties go to the lower index. The result is `(index, marginal value)` in the order of picks.

    `relevance`, shape `(n,)`, is the similarity to the query; `vectors`, shape `(n, d)`, are unit vectors;
    `relevance_weight` is `w` in [0, 1]. Picking ends when the best marginal value left is below `stop_below`
    (equation 3).

    Raises:
        ValueError: The shapes disagree, a number is not finite, or `k` or `relevance_weight` is out of range.
    """
    if k < 0:
        msg = f"k must be at least 0, got {k}"
        raise ValueError(msg)
    order = mmr_order(relevance, vectors, relevance_weight=relevance_weight, stop_below=stop_below)
    return list(islice(order, k))


def mmr_order(
    relevance: Floats, vectors: Floats, *, relevance_weight: float = 0.7, stop_below: float | None = 0.0
) -> Iterator[tuple[int, float]]:
    """Return an iterator over the picks of `mmr` without a limit; arguments and errors as there."""
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
    """Return the number of nodes to pick: 20 of up to 100 nodes, else 60 (equation 4)."""
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
        gain[best] = -np.inf  # is never picked again
        np.maximum(redundancy, vectors @ vectors[best], out=redundancy)
        value = gain - (1 - relevance_weight) * redundancy
