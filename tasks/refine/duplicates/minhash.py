"""MinHash signatures of texts, cut into bands: near-duplicates share a band, other texts hardly ever."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import polars as pl
from rensa import RMinHash

from tasks.refine.duplicates.shingles import SHINGLE_RULE, Hashes, shingle_sets

Bands = npt.NDArray[np.uint32]
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
