"""Look-alikes: skills with the same meaning in other words, by their vectors; reported, never folded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tasks.models.protocols import Vectors

LOOK_ALIKES = pl.Schema({"doc_id": pl.String, "other": pl.String, "similarity": pl.Float64})
_Index = npt.NDArray[np.int64]
_ROWS_AT_ONCE = 512
_MAX_PAIRS = 1_000_000


@dataclass(frozen=True, slots=True)
class LookAlikes:
    """The skills of a corpus that look alike.

    `pairs` has columns doc_id, other and similarity, the most similar first; `truncated` tells whether they
    were cut off at a million; `groups` are the skills that pairs connect, the largest first, ids in order.
    """

    documents: int
    pairs: pl.DataFrame
    groups: tuple[tuple[str, ...], ...]
    truncated: bool


def look_alikes(doc_ids: list[str], vectors: Vectors, *, threshold: float) -> LookAlikes:
    """Find all pairs of skills whose unit vectors, shape (n, d), have a cosine of at least `threshold`.

    Every pair is compared: time is quadratic in the skills, memory linear. `threshold` is above 0, at most 1.
    """
    order = sorted(range(len(doc_ids)), key=doc_ids.__getitem__)
    names, rows = [doc_ids[at] for at in order], np.ascontiguousarray(vectors[order], np.float32)
    one, other, similarity = _pairs(rows, threshold)
    frame = pl.DataFrame(
        {"doc_id": [names[i] for i in one], "other": [names[i] for i in other], "similarity": similarity},
        schema=LOOK_ALIKES,
    ).sort("similarity", "doc_id", "other", descending=[True, False, False])
    return LookAlikes(len(names), frame, _groups(names, one, other), len(one) >= _MAX_PAIRS)


def _pairs(rows: Vectors, threshold: float) -> tuple[_Index, _Index, npt.NDArray[np.float64]]:
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    count = 0
    # What rounding takes from two equal vectors must not hide them.
    least = min(threshold, 1 - 1e-6)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        cosines = rows[start : start + _ROWS_AT_ONCE] @ rows[start:].T
        near, later = np.nonzero(np.triu(cosines >= least, k=1))
        found.append((near + start, later + start, cosines[near, later].astype(np.float64)))
        count += near.size
        if count >= _MAX_PAIRS:
            break
    one, other, similarity = (np.concatenate(parts)[:_MAX_PAIRS] for parts in zip(*found, strict=True))
    return one, other, np.minimum(similarity, 1.0)


def _groups(names: list[str], one: _Index, other: _Index) -> tuple[tuple[str, ...], ...]:
    # Loads slowly, and no question needs it.
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    n = len(names)
    graph = coo_array((np.ones(one.size, np.int8), (one, other)), shape=(n, n))
    labels = connected_components(graph, directed=False)[1] if n else np.zeros(0, np.int64)
    members: dict[int, list[str]] = {}
    for at in np.unique(np.concatenate([one, other])).tolist():
        members.setdefault(int(labels[at]), []).append(names[at])
    return tuple(tuple(group) for group in sorted(members.values(), key=lambda group: (-len(group), group)))
