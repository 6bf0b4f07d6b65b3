"""Percentile bootstrap over queries (Efron, "Bootstrap methods", Annals of Statistics 1979)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Resamples are drawn this many numbers at a time, so that memory does not grow with the queries.
_BLOCK = 2_000_000


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 10_000, seed: int = 42
) -> tuple[float, float]:
    """Return the percentile interval of the mean of `values`.

    Args:
        values: One value a query.
        level: Share of the resampled means inside the interval, in (0, 1).
        resamples: How often as many queries are drawn with replacement.
        seed: Of the draws; the same values and seed give the same interval.

    Raises:
        ValueError: There are no values, or `level` or `resamples` is out of range.
    """
    sums = _resampled(_column(values), level, resamples, seed)
    return _percentiles(sums[:, 0] / len(values), level)


def bootstrap_ratio_interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 42,
) -> tuple[float, float]:
    """Return the percentile interval of `sum(numerators) / sum(denominators)`; arguments as above.

    Raises:
        ValueError: As above, or the two differ in length, or a denominator is not positive.
    """
    _check_pairs(numerators, denominators)
    if min(denominators, default=1) <= 0:
        msg = f"denominators must be positive, got {min(denominators)}"
        raise ValueError(msg)
    pairs = np.hstack([_column(numerators), _column(denominators)])
    sums = _resampled(pairs, level, resamples, seed)
    return _percentiles(sums[:, 0] / sums[:, 1], level)


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def _check_pairs(a: Sequence[float], b: Sequence[float]) -> None:
    if len(a) != len(b):
        msg = f"both sides must have one value a query, got {len(a)} and {len(b)}"
        raise ValueError(msg)


def _resampled(columns: Array, level: float, resamples: int, seed: int) -> Array:
    """Return the sums of each resample, shape `(resamples, m)`, of `columns` with shape `(n, m)`."""
    if not len(columns):
        msg = "there are no values to resample"
        raise ValueError(msg)
    if not 0 < level < 1 or resamples < 1:
        msg = f"level must be in (0, 1) and resamples at least 1, got {level} and {resamples}"
        raise ValueError(msg)
    random = np.random.default_rng(seed)
    n = len(columns)
    sums = np.empty((resamples, columns.shape[1]))
    step = max(1, _BLOCK // n)
    for first in range(0, resamples, step):
        drawn = random.integers(0, n, size=(min(step, resamples - first), n))
        sums[first : first + step] = columns[drawn].sum(axis=1)
    return sums


def _percentiles(statistics: Array, level: float) -> tuple[float, float]:
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def holm_bonferroni(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for how many they are, in their order (Holm 1979).

    The i-th smallest of m, counted from 0, is multiplied by m - i; an adjusted value is no smaller than that
    of a smaller p, and at most 1.

    Raises:
        ValueError: A value is not in [0, 1].
    """
    if not all(0 <= p <= 1 for p in values):
        msg = f"p-values lie in [0, 1], got {list(values)}"
        raise ValueError(msg)
    adjusted = [1.0] * len(values)
    least = 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[i]))
        adjusted[i] = least
    return adjusted
