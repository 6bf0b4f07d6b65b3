"""Clusters of copies among skills, and the split by them and by repository: no text is on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tasks.refine.duplicates.near import BANDS, Index, NearLimits, SignatureRule, near_folds, signatures
from tasks.refine.duplicates.shingles import shingle_sets

Rows = npt.NDArray[np.int64]


def clusters_of(bodies: Sequence[str], limits: NearLimits) -> Rows:
    """Return the cluster of each body, shape `(n,)`: equal and near ones, also through a chain of others."""
    signed = signatures(bodies, SignatureRule.for_threshold(limits.threshold))
    joined = b"".join(row or bytes(4 * BANDS) for row in signed["bands"])
    bands = np.frombuffer(joined, np.dtype("<u4")).reshape(-1, BANDS)
    sizes = signed["size"].cast(int).to_numpy()
    none = np.zeros((0, 2), np.int64), np.zeros(0)
    folds = near_folds(bands, sizes, lambda wanted: _sets(bodies, wanted), none, limits)
    near = folds.pairs[folds.similarity >= limits.threshold]
    first: dict[str, int] = {}
    equal = [(first.setdefault(body, row), row) for row, body in enumerate(bodies)]
    return _components(np.concatenate([near, np.array(equal, np.int64).reshape(-1, 2)]), len(bodies))


def validation_rows(repos: Sequence[str], clusters: Rows, share: float, seed: int) -> set[int]:
    """Return the rows of at most that share (0 to 1) which are validated on, drawn by seed.

    Rows with the same repository or cluster are on one side, also through a chain of further rows; such a
    component that is larger than the share that is still wanted is trained with.
    """
    keys: dict[Hashable, int] = {}
    pairs = [
        (row, len(repos) + keys.setdefault(key, len(keys)))
        for row, (repo, cluster) in enumerate(zip(repos, clusters.tolist(), strict=True))
        for key in (("repo", repo.casefold()), ("cluster", cluster))
    ]
    of = _components(np.array(pairs, np.int64).reshape(-1, 2), len(repos) + len(keys))[: len(repos)]
    sizes, chosen, taken = Counter(of.tolist()), set[int](), 0
    for component in np.random.default_rng(seed).permutation(np.unique(of)).tolist():
        if taken + sizes[component] <= share * len(repos):
            chosen.add(component)
            taken += sizes[component]
    return {row for row, component in enumerate(of.tolist()) if component in chosen}


def _sets(bodies: Sequence[str], wanted: Index) -> dict[int, np.ndarray[tuple[int], np.dtype[np.uint64]]]:
    numbers = wanted.tolist()
    return dict(zip(numbers, shingle_sets(bodies[number] for number in numbers), strict=True))


def _components(pairs: Rows, n: int) -> Rows:
    joined = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (n, n))
    return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)
