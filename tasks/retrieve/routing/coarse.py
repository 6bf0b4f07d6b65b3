"""Coarse scan: cosines of many vectors by their principal axes, and whole ones of the rows that lead.

The scan reads a sixth of the numbers (PCA), and the rows that lead by it are rescored. The mean and deviation
of whole cosines over all rows follow from the moments of the vectors, without reading them. Scores of rows
are standardised here, and the rows that lead found, with the scan and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import Scores
from tasks.retrieve.routing.micro_batches import cosines

EXACT_ROWS = 100_000  # up to so many rows all cosines are whole, unless SKILLERY_EXACT_ROWS says otherwise
RESCORED = 500  # of more rows, so many are rescored at least
_KEPT = ("scanned", "frame")
_SHARE = 6  # a whole vector has so many times the numbers of a scanned one
_BLOCK = 8192  # rows that are multiplied at once
_SAMPLE = 2048  # rows by which moments are mended that no formula gives
_NONE = 1e-6  # a variance or deviation that single precision does not tell from none


@dataclass(frozen=True, slots=True)
class Coarse:
    """Vectors with their coordinates on principal axes.

    `vectors` has shape `(rows, d)`, `scanned` `(rows, d / 6)`. `frame`, shape `(d + 2, d)`, has the axes,
    the strongest first, then the mean square on each, then the mean vector.
    """

    vectors: Vectors
    scanned: Vectors
    frame: Vectors

    def whole(self) -> bool:
        """Return whether the shapes fit each other."""
        rows, d = self.vectors.shape
        return self.scanned.shape == (rows, -(-d // _SHARE)) and self.frame.shape == (d + 2, d)

    def cosines(self, queries: Vectors) -> Vectors:
        """Return about the cosine of each row to each unit vector, shape `(queries, rows)`."""
        return cosines(self.scanned, cosines(self.frame[: self.scanned.shape[1]], queries))

    def standardised(self, queries: Vectors, rows: npt.NDArray[np.int64]) -> Vectors:
        """Return the whole cosines of some rows, in standard deviations of all, shape `(queries, some)`."""
        squares = cosines(self.frame[:-2], queries).astype(np.float64) ** 2 @ self.frame[-2]
        means = cosines(self.frame[-1:], queries).astype(np.float64)
        variances = squares[:, None] - means**2
        deviations = np.sqrt(np.where(variances > _NONE, variances, np.inf))
        return np.asarray((cosines(self.vectors[rows], queries) - means) / deviations, dtype=np.float32)

    def rescored(
        self, facets: Vectors, rows: npt.NDArray[np.int64], scanned: Vectors
    ) -> tuple[Vectors, Vectors]:
        """Return the whole cosines of some rows to the last facet, and the best to any, both standardised.

        `scanned`, shape `(rows,)`, has the best of all rows by the scan.
        """
        if len(facets) == 1:
            (only,) = self.standardised(facets, rows)
            return only, only
        # Of the best no moments are known: those of the scan, as far off as they are in a sample.
        sample = np.arange(0, len(scanned), -(-len(scanned) // _SAMPLE))
        near = self.standardised(facets, np.concatenate([rows, sample]))
        best, told = np.split(best_of(near), [len(rows)])
        mean = scanned.mean() + told.mean() - scanned[sample].mean()
        deviation = scanned.std() * told.std() / max(scanned[sample].std(), _NONE)
        return near[-1, : len(rows)], np.asarray((best - mean) / max(deviation, _NONE))


def best_rows(rows: npt.NDArray[np.int64], scores: Scores, k: int, doc_ids: Sequence[str]) -> list[int]:
    """Return the `k` of these rows that score highest, best first; rows of equal score by ascending id."""
    return sorted(leading(rows, scores, k).tolist(), key=lambda row: (-scores[row], doc_ids[row]))[:k]


def leading(rows: npt.NDArray[np.int64], scores: Vectors, k: int) -> npt.NDArray[np.int64]:
    """Return the `k` of these rows that score highest, in their order, and all that tie with the last one."""
    if len(rows) <= k:
        return rows
    taken = scores[rows]
    return np.asarray(rows[taken >= np.partition(taken, len(rows) - k)[len(rows) - k]])


def standardised(scores: Scores) -> Scores:
    """Return scores with mean 0 and variance 1 over all documents; zeros if all are equal."""
    deviation = float(scores.std()) if len(scores) else 0.0
    if deviation < 1e-9:
        return np.zeros_like(scores)
    return np.asarray((scores - scores.mean()) / deviation, dtype=np.float32)


def rows_standardised(scores: Scores) -> Scores:
    """Standardise each row of scores in its place, and return them."""
    for row in scores:
        row[:] = standardised(row)
    return scores


def best_of(near: Vectors) -> Vectors:
    """Return the best cosine to any facet; the last of several is the whole query, and none itself."""
    return np.asarray(near[: max(1, len(near) - 1)].max(axis=0))


def coarse_by_name(vectors: Vectors, learned: Vectors | None) -> dict[str, Coarse]:
    """Return `coarse_of` the vectors of an index, `vectors` and `learned`; the latter may be missing."""
    return {name: coarse_of(held) for name, held in _named(vectors, learned).items()}


def coarse_arrays(vectors: Vectors, learned: Vectors) -> dict[str, Vectors]:
    """Return what an index of more than `EXACT_ROWS` rows keeps of its vectors, by the names of its files."""
    found = coarse_by_name(vectors, learned) if len(vectors) > EXACT_ROWS else {}
    return {f"{name}_{part}": getattr(one, part) for name, one in found.items() for part in _KEPT}


def coarse_kept(
    vectors: Vectors, learned: Vectors, read: Callable[[str], Vectors], files: Container[str]
) -> dict[str, Coarse]:
    """Return what is kept of vectors, by their names; `read` returns the array of a name."""
    held = {n: of for n, of in _named(vectors, learned).items() if f"{n}_{_KEPT[0]}.npy" in files}
    return {n: Coarse(of, *(read(f"{n}_{part}") for part in _KEPT)) for n, of in held.items()}


def _named(vectors: Vectors, learned: Vectors | None) -> dict[str, Vectors]:
    given = {"vectors": vectors, "learned": learned}
    return {name: held for name, held in given.items() if held is not None and held.size}


def coarse_of(vectors: Vectors) -> Coarse:
    """Return unit vectors with their coordinates on principal axes."""
    blocks = [vectors[at : at + _BLOCK] for at in range(0, len(vectors), _BLOCK)]
    square = np.sum([block.T @ block for block in blocks], axis=0, dtype=np.float64) / len(vectors)
    strengths, axes = np.linalg.eigh(square)
    mean = np.asarray(vectors).mean(axis=0, dtype=np.float64)
    frame = np.vstack([axes.T[::-1], strengths[::-1], mean]).astype(np.float32)
    first = frame[: -(-vectors.shape[1] // _SHARE)]
    return Coarse(vectors, np.concatenate([block @ first.T for block in blocks]), frame)
