"""The split of skills for training and measuring, by which no text is on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tasks.retrieve.routing.router import plain_name
from tasks.retrieve.routing.skill import Skill

Rows = npt.NDArray[np.int64]


class Split(NamedTuple):
    """Rows of the skills to train with, and of those held out; one of each held-out family."""

    train: Rows
    held_out: Rows


def families(skills: Sequence[Skill]) -> Rows:
    """Return the family of each skill, shape `(n,)`: skills of one name or one body are of one family.

    So are those that a chain of equal names and bodies joins: copies keep the one or the other.
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

    Args:
        of: Each row's family, shape `(n,)`.
        share: Of the families, how many are held out, between 0 and 1.
        seed: Decides which.
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
