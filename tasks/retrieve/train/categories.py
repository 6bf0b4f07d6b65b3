"""Categories of skills: those that a listing gives, clusters of description vectors for the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.cluster.vq import kmeans2

from tasks.models.protocols import Vectors
from tasks.retrieve.train.split import Rows

_SAMPLE = 5000  # vectors that centres are found with
CLUSTERS = 50

"""SkillRouter's pool has 51 categories (section 2.2)."""


def categories_of(given: Sequence[str | None], vectors: Vectors, clusters: int, seed: int) -> list[str]:
    """Return a category a skill: the one given, else the cluster that its vector lies in.

    Args:
        given: Of each skill, None or blank where no listing gives one.
        vectors: Unit vectors of name and description, shape `(n, d)`.
        clusters: How many at most; k-means, started by k-means++ (Arthur and Vassilvitskii, 2007).
        seed: Decides where it starts.
    """
    missing = np.array([not (name or "").strip() for name in given], dtype=np.bool_)
    of = _clusters(vectors[missing], clusters, seed).tolist()
    numbers = iter(of)
    return [f"cluster {next(numbers)}" if lacks else str(n) for n, lacks in zip(given, missing, strict=True)]


def in_turn(rows: Rows, categories: Sequence[str]) -> Rows:
    """Return rows so that the categories take turns, each in its own order: of a few all have a share."""
    counts: dict[str, int] = {}
    turns = [counts.setdefault(categories[row], 0) for row in rows.tolist()]
    for at, row in enumerate(rows.tolist()):
        turns[at] = counts[categories[row]]
        counts[categories[row]] += 1
    return np.asarray(rows[np.argsort(np.array(turns, dtype=np.int64), kind="stable")], dtype=np.int64)


def _clusters(vectors: Vectors, clusters: int, seed: int) -> Rows:
    if not len(vectors):
        return np.zeros(0, dtype=np.int64)
    draw = np.random.default_rng(seed)
    sample = vectors[draw.permutation(len(vectors))[:_SAMPLE]]
    distinct = len(np.unique(sample, axis=0))
    with warnings.catch_warnings():
        # An empty cluster keeps its old centre, and is no category of anything.
        warnings.filterwarnings("ignore", "One of the clusters is empty", UserWarning)
        centres, _ = kmeans2(sample, min(clusters, distinct), minit="++", rng=draw)
    return np.asarray((vectors @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1), dtype=np.int64)
