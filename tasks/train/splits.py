"""Splits of what is trained with and measured on: folds by owner, families of equal skills, categories."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import count
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
_SAMPLE = 5000  # vectors that the centres of clusters are computed from


class Split(NamedTuple):
    """Rows of the skills to train with, and of those held out: one skill per held-out family."""

    train: Rows
    held_out: Rows


def folds_of(owners: Sequence[Hashable], folds: int, seed: int = 0) -> Rows:
    """Return each row's fold, from 0, drawn by a seed; rows of one owner share theirs."""
    names, of = np.unique(np.asarray(owners), return_inverse=True)
    return np.asarray((np.random.default_rng(seed).permutation(len(names)) % folds)[of], dtype=np.int64)


def families(skills: Sequence[Skill]) -> Rows:
    """Return the family of each skill, shape `(n,)`.

    Skills with the same name or the same body are of one family, also through a chain of further skills,
    because a copy may have changed either.
    """
    keys: dict[tuple[str, str], int] = {}
    ends = [
        keys.setdefault(key, len(keys))
        for skill in skills
        for key in (("name", plain_name(skill.name)), ("body", " ".join(skill.body.split())))
    ]
    # A graph of skills and keys, in which each skill is joined with its two keys.
    rows, columns = np.repeat(np.arange(len(skills)), 2), len(skills) + np.array(ends, dtype=np.int64)
    size = len(skills) + len(keys)
    joined = coo_array((np.ones(len(rows)), (rows, columns)), (size, size))
    return np.asarray(connected_components(joined, directed=False)[1][: len(skills)], dtype=np.int64)


def split_families(
    of: Rows, share: float, seed: int, trained: Sequence[int] = (), validated: Sequence[int] = ()
) -> Split:
    """Return rows to train with and rows held out, ascending; no family is in both.

    `of` is each row's family, shape `(n,)`. The share of the families, 0 to 1, is drawn by the seed. The
    families of the rows `trained` are trained with; `validated` are held out, if none of `trained` is of
    their family.
    """
    wanted = np.array(validated, dtype=np.int64)
    used = of[np.array(trained, dtype=np.int64)]
    asked = np.setdiff1d(of[wanted], used)
    free = np.setdiff1d(of, np.concatenate([asked, used]))
    drawn = free[np.random.default_rng(seed).permutation(len(free))[: round(share * len(free))]]
    held = np.concatenate([asked, drawn])
    order = np.concatenate([wanted, np.arange(len(of))])  # who is asked for stands for the family
    names, first = np.unique(of[order], return_index=True)
    return Split(np.flatnonzero(~np.isin(of, held)), np.sort(order[first[np.isin(names, held)]]))


def one_a_family(of: Rows, rows: Rows, draw: np.random.Generator) -> Rows:
    """Return one of the rows of each family, drawn at random, in random order."""
    shuffled = draw.permutation(rows)
    first = draw.permutation(np.unique(of[shuffled], return_index=True)[1])
    return np.asarray(shuffled[first], dtype=np.int64)


def categories_of(given: Sequence[str | None], vectors: Vectors, clusters: int, seed: int) -> list[str]:
    """Return the category of each skill: the one given, or the cluster of its vector if that is blank.

    `vectors` are unit vectors of name and description, shape `(n, d)`. There are at most so many clusters, by
    k-means with the start of k-means++ (Arthur and Vassilvitskii, 2007).
    """
    missing = np.array([not (name or "").strip() for name in given], dtype=np.bool_)
    numbers = iter(_clusters(vectors[missing], clusters, seed).tolist())
    return [f"cluster {next(numbers)}" if lacks else str(n) for n, lacks in zip(given, missing, strict=True)]


def in_turn(rows: Rows, categories: Sequence[str]) -> Rows:
    """Return rows so that the categories take turns; each category keeps its order of rows."""
    seen: defaultdict[str, Iterator[int]] = defaultdict(count)
    turns = [next(seen[categories[row]]) for row in rows.tolist()]
    return np.asarray(rows[np.argsort(np.array(turns, dtype=np.int64), kind="stable")], dtype=np.int64)


def _clusters(vectors: Vectors, clusters: int, seed: int) -> Rows:
    if not len(vectors):
        return np.zeros(0, dtype=np.int64)
    draw = np.random.default_rng(seed)
    sample = vectors[draw.permutation(len(vectors))[:_SAMPLE]]
    distinct = len(np.unique(sample, axis=0))
    with warnings.catch_warnings():
        # An empty cluster keeps its old centre, and no skill gets it as its category.
        warnings.filterwarnings("ignore", "One of the clusters is empty", UserWarning)
        centres, _ = kmeans2(sample, min(clusters, distinct), minit="++", rng=draw)
    # The nearest centre by Euclidean distance, of which the vectors' own lengths are no part.
    return np.asarray((vectors @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1), dtype=np.int64)
