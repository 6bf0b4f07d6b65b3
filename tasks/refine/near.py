"""Near-duplicates among texts: candidates that share a band, verified on their true shingle sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.refine.clusters import Index, survivors
from tasks.refine.shingles import Hashes, jaccard
from tasks.refine.signatures import Bands

SetsOf = Callable[[Index], Mapping[int, Hashes]]
Similarities = npt.NDArray[np.float64]

_ROUNDS, _WIDER, _MAX_HUBS = 8, 4, 2048
# Shingles of texts held at once while pairs are verified: 8 bytes each.
_SHINGLES_AT_ONCE = 100_000_000


@dataclass(frozen=True, slots=True)
class NearLimits:
    """What counts as a near-duplicate.

    `threshold` is the Jaccard similarity of word 5-shingles, 0 to 1, from which a text folds; `max_cluster`
    how many fold onto one survivor at most; `hubs` with how many of the best of a bucket its texts are
    compared at first.
    """

    threshold: float = 0.85
    max_cluster: int = 1000
    hubs: int = 16


@dataclass(frozen=True, slots=True)
class NearFolds:
    """Which text folds onto which, numbered by rank.

    `onto` has a text's survivor, itself where it survives; `pairs` (m, 2) are all that were compared, better
    first, with `similarity` (m,); `uncompared` is how many texts share a bucket with so many survivors that
    they were not compared with all of them.
    """

    onto: Index
    pairs: Index
    similarity: Similarities
    uncompared: int


def near_folds(
    bands: Bands, sizes: Index, sets_of: SetsOf, known: tuple[Index, Similarities], limits: NearLimits
) -> NearFolds:
    """Fold near-duplicates onto survivors.

    A bucket, the texts that share a band, may hold a template's thousands of copies. So its texts are first
    compared with its best few only, those that survive with four times as many, and so on: up to 2,048
    survivors of a bucket are all compared with each other. Where no bucket has more, the survivors are those
    that comparing all with all would give; else `uncompared` says so.

    Args:
        bands: Shape (n, 20), a row a text, best rank first.
        sizes: Shape (n,), distinct shingles; texts of none are near none.
        sets_of: Gives the shingle sets of texts by their numbers.
        known: Pairs (m, 2), better first, that need not be compared again, and their similarity.
        limits: What counts as near.
    """
    n, hubs, (pairs, similarity) = sizes.size, limits.hubs, known
    uncompared = 0
    for _ in range(_ROUNDS):
        onto = survivors(pairs[similarity >= limits.threshold], n, max_cluster=limits.max_cluster)
        alive = np.flatnonzero((onto == np.arange(n)) & (sizes > 0))
        codes, uncompared = _candidates(bands, sizes, alive, hubs, limits.threshold)
        new = _decoded(np.setdiff1d(codes, pairs[:, 0] * n + pairs[:, 1], assume_unique=True), n)
        if not len(new) and (not uncompared or hubs >= _MAX_HUBS):
            break
        pairs = np.concatenate([pairs, new])
        similarity = np.concatenate([similarity, verified(new, sizes, sets_of)])
        hubs = min(hubs * _WIDER, _MAX_HUBS)
    onto = survivors(pairs[similarity >= limits.threshold], n, max_cluster=limits.max_cluster)
    return NearFolds(onto, pairs, similarity, uncompared)


def verified(pairs: Index, sizes: Index, sets_of: SetsOf) -> Similarities:
    """Return the true Jaccard similarity of each pair of texts, shape (m,)."""
    found = np.zeros(len(pairs))
    for block in _blocks(np.arange(len(pairs)), pairs, sizes):
        sets = sets_of(np.unique(pairs[block]))
        for row, (one, other) in zip(block.tolist(), pairs[block].tolist(), strict=True):
            found[row] = jaccard(sets[one], sets[other])
    return found


def _blocks(rows: Index, pairs: Index, sizes: Index) -> Iterator[Index]:
    """Cut rows of pairs into runs whose texts' shingles can be held at once."""
    if rows.size < 2 or sizes[np.unique(pairs[rows])].sum() <= _SHINGLES_AT_ONCE:
        yield rows
        return
    for half in np.array_split(rows, 2):
        yield from _blocks(half, pairs, sizes)


def _candidates(bands: Bands, sizes: Index, alive: Index, hubs: int, threshold: float) -> tuple[Index, int]:
    """Return pairs of texts to compare, as better * n + worse, and how many texts their bucket left out."""
    found, left_out = [np.zeros(0, np.int64)], np.zeros(alive.size, bool)
    for band in range(bands.shape[1]):
        values = bands[alive, band]
        order = np.argsort(values, kind="stable")
        starts = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]) != 0)
        place = np.arange(alive.size) - np.repeat(starts, np.diff(starts, append=alive.size))
        partners = np.minimum(place, hubs)
        left_out[order[place > hubs]] = True
        worse = np.repeat(np.arange(alive.size), partners)
        nth = np.arange(worse.size) - np.repeat(np.cumsum(partners) - partners, partners)
        one, other = alive[order[worse - place[worse] + nth]], alive[order[worse]]
        # The smaller set over the larger bounds the similarity of two sets from above.
        small, large = np.minimum(sizes[one], sizes[other]), np.maximum(sizes[one], sizes[other])
        close = small >= threshold * large
        found.append(np.unique(one[close] * sizes.size + other[close]))
    return np.unique(np.concatenate(found)), int(left_out.sum())


def _decoded(codes: Index, n: int) -> Index:
    return np.stack(np.divmod(codes, max(n, 1)), axis=1)
