"""Which of many texts that resemble each other survives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]


def survivors(pairs: Index, n: int, *, max_cluster: int) -> Index:
    """Return for each text the one that it folds onto: itself, where it survives.

    Texts are numbered by rank, 0 the best. In that order each text that is not folded yet survives, and each
    lesser one near it folds onto it: so a text always is near its own survivor, however long the chain of
    texts that resemble each other, and which survive depends on neither the order nor the number of pairs
    known between folded texts (they are the lexicographically first maximal independent set). Texts that no
    chain of pairs connects have no influence on each other.

    Args:
        pairs: Shape (m, 2): two near texts each, the better first.
        n: How many texts there are.
        max_cluster: So many fold onto one survivor at most; the next best survives beside it.
    """
    onto = list(range(n))
    taken: dict[int, int] = {}
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    for better, worse in pairs[order].tolist():
        if onto[better] == better and onto[worse] == worse and taken.get(better, 0) < max_cluster:
            onto[worse] = better
            taken[better] = taken.get(better, 0) + 1
    return np.array(onto, dtype=np.int64)
