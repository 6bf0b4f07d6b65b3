"""Boosted trees over cues that are there or not: shallow complete trees, walked for all fragments at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Columns = npt.NDArray[np.int32]
Present = npt.NDArray[np.bool_]


class Forest(NamedTuple):
    """Trees of one depth D; tree t votes for type `t % types`.

    `columns` has the column asked at each inner node, shape `(trees, 2**D - 1)`, children of node k at
    2k+1 (absent) and 2k+2 (present). `leaves` has the votes, shape `(trees, 2**D)`; `start` each type's
    score before any vote.
    """

    columns: Columns
    leaves: Floats
    start: Floats


def tree_scores(forest: Forest, present: Present) -> Floats:
    """Return each type's score, shape `(n, types)`, for rows of cues present, shape `(n, columns)`."""
    trees, inner = forest.columns.shape
    node = np.zeros((len(present), trees), dtype=np.int32)
    each, row = np.arange(trees), np.arange(len(present))[:, None]
    for _ in range((inner + 1).bit_length() - 1):
        node = 2 * node + 1 + present[row, forest.columns[each, node]]
    votes = forest.leaves[each, node - inner]
    scores: Floats = votes.reshape(len(present), -1, len(forest.start)).sum(axis=1) + forest.start
    return scores
