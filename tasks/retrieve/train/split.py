"""The split of skills for training and measuring, by which no text is on both sides."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans2
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.router import plain_name
from tasks.retrieve.routing.skill import Skill

Rows = npt.NDArray[np.int64]
_SAMPLE = 5000  # vectors that the centres of clusters are found with


class Split(NamedTuple):
    """Rows of the skills to train with, and of those held out: one of each held-out family."""

    train: Rows
    held_out: Rows


def families(skills: Sequence[Skill]) -> Rows:
    """Return the family of each skill, shape `(n,)`.

    Skills with the same name or the same body are of one family, and so are those that a chain of equal names
    and bodies joins: a copy may have changed either.
    """
    keys: dict[tuple[str, str], int] = {}
    ends = [
        keys.setdefault(key, len(keys))
        for skill in skills
        for key in (("name", plain_name(skill.name)), ("body", " ".join(skill.body.split())))
    ]
    rows = np.repeat(np.arange(len(skills)), 2)
    size = len(skills) + len(keys)
    joined = coo_array(
        (np.ones(len(rows)), (rows, len(skills) + np.array(ends, dtype=np.int64))), (size, size)
    )
    return np.asarray(connected_components(joined, directed=False)[1][: len(skills)], dtype=np.int64)


def split_families(of: Rows, share: float, seed: int) -> Split:
    """Return rows to train with and rows held out, ascending; no family is in both.

    `of` is each row's family, shape `(n,)`; `share` the share of families that is held out, 0 to 1.
    """
    names, first = np.unique(of, return_index=True)
    drawn = np.random.default_rng(seed).permutation(len(names))[: round(share * len(names))]
    held = np.isin(of, names[drawn])
    return Split(np.flatnonzero(~held), np.sort(first[drawn]))


def one_a_family(of: Rows, rows: Rows, draw: np.random.Generator) -> Rows:
    """Return one of the rows of each family, drawn at random, in random order."""
    shuffled = draw.permutation(rows)
    return np.asarray(
        shuffled[draw.permutation(np.unique(of[shuffled], return_index=True)[1])], dtype=np.int64
    )


_SAMPLE = 5000  # vectors that centres are found with
CLUSTERS = 50

"""SkillRouter's pool has 51 categories (section 2.2)."""


def categories_of(given: Sequence[str | None], vectors: Vectors, clusters: int, seed: int) -> list[str]:
    """Return a category for each skill: the one given, else the cluster of its vector.

    Args:
        given: None or blank if no listing gives one.
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
