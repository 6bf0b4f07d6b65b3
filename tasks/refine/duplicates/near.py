"""Near-duplicates among texts: candidates share a band of their MinHash, and are verified on shingles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from rensa import RMinHash

from tasks.refine.duplicates.shingles import SHINGLE_RULE, Hashes, jaccard, jaccards, shingle_sets

Bands = npt.NDArray[np.unsignedinteger[Any]]
BANDS = 20
MAX_MISS = 0.005
_MAX_ROWS = 16
_SEED = 20
_TEXTS_AT_ONCE = 500
_ODD = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class SignatureRule:
    """The form of signatures: 20 bands of `rows` MinHash values each (Broder 1997; Leskovec et al., ch. 3).

    Two texts of Jaccard similarity s share a band with probability 1 - (1 - s^rows)^20.
    """

    rows: int

    @classmethod
    def for_threshold(cls, threshold: float) -> SignatureRule:
        """Return the rule with the most rows that misses at most 0.5 % of pairs at the threshold (0 to 1)."""
        shared = 1 - MAX_MISS ** (1 / BANDS)
        rows = _MAX_ROWS if threshold >= 1 else int(math.log(shared) / math.log(threshold))
        return cls(min(max(rows, 1), _MAX_ROWS))

    @property
    def name(self) -> str:
        """The name stored beside each signature; it changes whenever signatures would."""
        return f"{SHINGLE_RULE} minhash{RMinHash.ALGORITHM_VERSION} {BANDS}x{self.rows} {_SEED}"


def signatures(bodies: Iterable[str], rule: SignatureRule) -> pl.DataFrame:
    """Return the signatures of canonical texts, in the order given.

    Returns:
        Columns size, a text's number of distinct shingles, and bands (80 bytes, none where size is 0).
    """
    sets, sizes, bands = shingle_sets(bodies), list[int](), list[bytes]()
    while block := list(islice(sets, _TEXTS_AT_ONCE)):
        sizes += [found.size for found in block]
        made = _banded(block, rule)
        bands += [row.tobytes() if found.size else b"" for row, found in zip(made, block, strict=True)]
    return pl.DataFrame({"size": sizes, "bands": bands}, schema={"size": pl.Int32, "bands": pl.Binary})


def _banded(sets: list[Hashes], rule: SignatureRule) -> Bands:
    ends = np.cumsum([0, *(found.size for found in sets)]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(sets), ends, BANDS * rule.rows, _SEED
    )
    values = np.array(matrix.to_rows(), np.uint64).reshape(len(sets), BANDS, rule.rows)
    hashed = np.zeros((len(sets), BANDS), np.uint64)
    for place in range(rule.rows):
        hashed = (hashed ^ values[:, :, place]) * np.uint64(_ODD)
        hashed ^= hashed >> np.uint64(29)
    return (hashed >> np.uint64(32)).astype("<u4")


Index = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]
SetsOf = Callable[[Index], Mapping[int, Hashes]]
# With how many survivors of a large bucket its texts are compared, by round; the last value stands twice, so
# that one more round compares what the round before found to survive.
_HUBS = (1, 4, 16, 64, 256, 1024, 2048, 2048)
# For fewer sets `jaccard` is faster than building the table of `jaccards`; that takes so many at once.
_FEW, _SETS_AT_ONCE = 8, 1000
# Shingles held at once while pairs are verified, 8 bytes each: bounds memory at 800 MB.
_SHINGLES_AT_ONCE = 100_000_000


@dataclass(frozen=True, slots=True)
class NearLimits:
    """What counts as a near-duplicate."""

    threshold: float = 0.85  # least Jaccard similarity of word 5-shingles from which a text folds, 0 to 1
    max_cluster: int = 1000  # most texts that fold onto one survivor; the next best survives beside it
    max_bucket: int = 16  # most texts of one bucket (they share a band) that are all compared at once


def survivors(pairs: Index, n: int, *, max_cluster: int) -> Index:
    """Return for each of n texts the text that it folds onto: itself where it survives.

    By rank, 0 the best, each text that has not folded survives, and each lesser text near it folds onto it
    (the lexicographically first maximal independent set). So a text is always near its survivor, however long
    a chain of similar texts is. Pairs between folded texts have no influence, nor has the order of `pairs`:
    shape (m, 2), ranks of two near texts, the better first.
    """
    onto = list(range(n))
    taken = Counter[int]()
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    for better, worse in pairs[order].tolist():
        if onto[better] == better and onto[worse] == worse and taken[better] < max_cluster:
            onto[worse] = better
            taken[better] += 1
    return np.array(onto, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class NearFolds:
    """Which text folds onto which; texts are numbered by rank."""

    onto: Index  # shape (n,): each text's survivor
    pairs: Index  # shape (m, 2): all pairs compared, better first
    similarity: Similarities  # shape (m,): their Jaccard similarity
    # Number of texts not compared with all survivors of their bucket, because it has too many.
    uncompared: int


def near_folds(
    bands: Bands, sizes: Index, sets_of: SetsOf, known: tuple[Index, Similarities], limits: NearLimits
) -> NearFolds:
    """Fold near-duplicates onto survivors.

    A bucket may hold thousands of copies of a template. Its texts are first compared with the best one only,
    the survivors with the best four, and so on, until up to 2,048 survivors of a bucket are all compared with
    each other. If no bucket has more, the result is that of comparing all pairs; else `uncompared` counts.

    Args:
        bands: Shape (n, 20), a row a text, best rank first.
        sizes: Shape (n,): numbers of distinct shingles; a text of 0 is near none.
        sets_of: Returns the shingle sets of texts by their numbers.
        known: Pairs (m, 2), better first, that need no comparison, and their similarity.
        limits: What counts as near.
    """
    n, (pairs, similarity), uncompared = sizes.size, known, 0
    shared = _shared(bands, np.flatnonzero(sizes > 0))
    for hubs in _HUBS:
        onto = survivors(pairs[similarity >= limits.threshold], n, max_cluster=limits.max_cluster)
        codes, uncompared = _candidates(shared, sizes, onto == np.arange(n), hubs, limits)
        codes = np.union1d(codes, _better_survivors(shared, sizes, onto, limits))
        fresh = np.setdiff1d(codes, pairs[:, 0] * n + pairs[:, 1], assume_unique=True)
        new = np.stack(np.divmod(fresh, max(n, 1)), axis=1)
        if not len(new) and not uncompared:
            break
        pairs = np.concatenate([pairs, new])
        similarity = np.concatenate([similarity, verified(new, sizes, sets_of)])
    onto = survivors(pairs[similarity >= limits.threshold], n, max_cluster=limits.max_cluster)
    return NearFolds(onto, pairs, similarity, uncompared)


def verified(pairs: Index, sizes: Index, sets_of: SetsOf) -> Similarities:
    """Return the Jaccard similarity of each pair (m, 2); pairs with the same first text stand together."""
    found = np.zeros(len(pairs))
    for block in _blocks(np.arange(len(pairs)), pairs, sizes):
        sets = sets_of(np.unique(pairs[block]))
        for rows in np.split(block, np.flatnonzero(np.diff(pairs[block, 0])) + 1):
            for some in np.array_split(rows, -(-rows.size // _SETS_AT_ONCE)):
                one, others = sets[int(pairs[some[0], 0])], [sets[int(at)] for at in pairs[some, 1]]
                few = some.size < _FEW
                found[some] = [jaccard(one, other) for other in others] if few else jaccards(one, others)
    return found


def _blocks(rows: Index, pairs: Index, sizes: Index) -> Iterator[Index]:
    """Cut rows of pairs into runs whose shingles fit into memory at once."""
    if not rows.size:
        return
    if rows.size == 1 or sizes[np.unique(pairs[rows])].sum() <= _SHINGLES_AT_ONCE:
        yield rows
        return
    for half in np.array_split(rows, 2):
        yield from _blocks(half, pairs, sizes)


def _shared(bands: Bands, texts: Index) -> list[tuple[Index, Bands]]:
    """Return for each band the texts that share their value with another, sorted by value, and the values."""
    found = []
    for band in range(bands.shape[1]):
        values = bands[texts, band]
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        differs = np.diff(ordered, prepend=~ordered[:1], append=~ordered[-1:]) != 0
        order = order[~(differs[:-1] & differs[1:])]
        found.append((texts[order], values[order]))
    return found


def _candidates(
    shared: list[tuple[Index, Bands]], sizes: Index, alive: npt.NDArray[np.bool_], hubs: int,
    limits: NearLimits,
) -> tuple[Index, int]:  # fmt: skip
    """Return pairs to compare, as better * n + worse, and how many texts are not compared with all others."""
    found, left_out = [np.zeros(0, np.int64)], np.zeros(sizes.size, bool)
    for everyone, values_of in shared:
        members, values = everyone[alive[everyone]], values_of[alive[everyone]]
        starts = np.flatnonzero(np.diff(values, prepend=~values[:1]) != 0)
        count = np.diff(starts, append=members.size)
        place = np.arange(members.size) - np.repeat(starts, count)
        most = np.repeat(np.where(count <= max(limits.max_bucket, hubs), count, hubs), count)
        partners = np.minimum(place, most)
        left_out[members[place > most]] = True
        worse = np.repeat(np.arange(members.size), partners)
        nth = np.arange(worse.size) - np.repeat(np.cumsum(partners) - partners, partners)
        found.append(_codes(members[worse - place[worse] + nth], members[worse], sizes, limits))
    return np.unique(np.concatenate(found)), int(left_out.sum())


def _better_survivors(
    shared: list[tuple[Index, Bands]], sizes: Index, onto: Index, limits: NearLimits
) -> Index:
    """Return pairs of a folded text and a better survivor than its own, at most `max_bucket` a text."""
    n, found = sizes.size, [np.zeros(0, np.int64)]
    for members, values in shared:
        bucket = np.cumsum(np.diff(values, prepend=values[:1]) != 0) * n
        lives = onto[members] == members
        alive, places = members[lives], (bucket + members)[lives]
        folded, bucket = members[~lives], bucket[~lives]
        first = np.searchsorted(places, bucket)
        partners = np.searchsorted(places, bucket + onto[folded]) - first
        partners = np.minimum(partners, limits.max_bucket)
        nth = np.arange(partners.sum()) - np.repeat(np.cumsum(partners) - partners, partners)
        better = alive[np.repeat(first, partners) + nth]
        found.append(_codes(better, np.repeat(folded, partners), sizes, limits))
    return np.unique(np.concatenate(found))


def _codes(better: Index, worse: Index, sizes: Index, limits: NearLimits) -> Index:
    """Return pairs as better * n + worse, each once, without those too different in size to be near."""
    # |smaller| / |larger| bounds the Jaccard similarity of two sets from above.
    small, large = np.minimum(sizes[better], sizes[worse]), np.maximum(sizes[better], sizes[worse])
    close = small >= limits.threshold * large
    return np.unique(better[close] * sizes.size + worse[close])
