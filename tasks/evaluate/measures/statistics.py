"""Statistics over queries: bootstrap intervals, paired tests, p of several tests, AUROC, calibration.

The bootstrap is Efron's ("Bootstrap methods", Annals of Statistics 1979): queries are drawn with replacement,
10,000 times by seed 42, so that the same values always have the same interval. Calibration says in ten bins
whether answers are as often right as their confidence says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# Resamples are drawn this many numbers at a time, so that memory does not grow with the queries.
_BLOCK = 2_000_000


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 10_000, seed: int = 42
) -> tuple[float, float]:
    """Return the percentile interval of the mean of values, one a query; raise ValueError if there is none.

    The share `level`, in (0, 1), of the means of `resamples` samples lies inside.
    """
    sums = _resampled(_column(values), resamples, seed)
    return percentiles(sums[:, 0] / len(values), level)


def bootstrap_ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float]
) -> tuple[float, float]:
    """Return the 95 % percentile interval of `sum(numerators) / sum(denominators)`, one of each a query.

    Denominators are positive. Raises ValueError if there are none, or the two differ in length.
    """
    _check_pairs(numerators, denominators)
    sums = _resampled(np.hstack([_column(numerators), _column(denominators)]))
    return percentiles(sums[:, 0] / sums[:, 1])


def clustered_interval(values: Sequence[float], clusters: Sequence[str]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of `values`, whole clusters drawn with replacement.

    Values of one cluster (the queries of one document) are alike: this interval is wider, and the more honest
    one for other documents. `clusters` names the cluster of each value. Errors are those of
    `bootstrap_ratio_interval`.
    """
    _check_pairs(values, clusters)
    sums, counts = cluster_sums([values, [1.0] * len(values)], clusters).T.tolist()
    return bootstrap_ratio_interval(sums, counts)


def cluster_sums(columns: Sequence[Sequence[float]], clusters: Sequence[str]) -> Array:
    """Return the sum of each column over each cluster, shape `(clusters, columns)`, in order of appearance.

    `clusters` names the cluster of each value of a column.
    """
    place = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    at = np.array([place[name] for name in clusters], dtype=np.int64)
    return np.stack([np.bincount(at, weights=column, minlength=len(place)) for column in columns], axis=1)


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], *, level: float = 0.95, resamples: int = 10_000,
    clusters: Sequence[str] | None = None,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Return the mean of `a - b` over queries, its percentile interval, and a two-sided p-value.

    Queries are drawn with both their values; with `clusters`, the one of each query, whole clusters are. p is
    twice the smaller share of resampled differences on either side of 0, at most 1 and at least
    `1 / resamples`, and with c clusters `2 / c**c`: there are only `c**c` different draws of them.

    Raises:
        ValueError: As `bootstrap_interval`, or two arguments differ in length.
    """
    _check_pairs(a, b)
    difference, least = _column(a) - _column(b), 1 / resamples
    if clusters is None:
        means = _resampled(difference, resamples)[:, 0] / max(len(a), 1)
    else:
        _check_pairs(a, clusters)
        columns = cluster_sums([difference[:, 0].tolist(), [1.0] * len(a)], clusters)
        sums = _resampled(columns, resamples)
        means, least = sums[:, 0] / sums[:, 1], max(least, 2.0 * len(columns) ** -float(len(columns)))
    low, high = percentiles(means, level)
    side = min(float((means <= 0).mean()), float((means >= 0).mean()))
    return float(difference.mean()), low, high, min(1.0, max(2 * side, least))


def wilcoxon(a: Sequence[float], b: Sequence[float]) -> tuple[float, int, float]:
    """Return the statistic W of the signed-rank test, the number of pairs that differ, and a two-sided p.

    Pairs without a difference are left out (Wilcoxon 1945); where none differs, W is 0 and p is 1.

    Raises:
        ValueError: The two differ in length.
    """
    from scipy.stats import wilcoxon as signed_rank  # noqa: PLC0415 (half a second that few pay)

    _check_pairs(a, b)
    # Means of shares differ in their last bits where they are the same.
    differences = [round(x - y, 12) for x, y in zip(a, b, strict=True)]
    differing = sum(d != 0 for d in differences)
    if not differing:
        return 0.0, 0, 1.0
    found = signed_rank(differences)
    return float(found.statistic), differing, float(found.pvalue)


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float | None:
    """Return the share of pairs in which the positive is larger, of equals one half; None without pairs."""
    if not len(positives) or not len(negatives):
        return None
    apart = _column(positives) - _column(negatives).T
    return float((apart > 0).mean() + 0.5 * (apart == 0).mean())


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def _check_pairs(a: Sequence[object], b: Sequence[object]) -> None:
    if len(a) != len(b):
        raise ValueError(f"both sides must have one value a query, got {len(a)} and {len(b)}")


def _resampled(columns: Array, resamples: int = 10_000, seed: int = 42) -> Array:
    """Return the sums of each resample, shape `(resamples, m)`, of `columns` with shape `(n, m)`."""
    if not len(columns):
        raise ValueError("there are no values to resample")
    random = np.random.default_rng(seed)
    n = len(columns)
    sums = np.empty((resamples, columns.shape[1]))
    step = max(1, _BLOCK // n)
    for first in range(0, resamples, step):
        drawn = random.integers(0, n, size=(min(step, resamples - first), n))
        sums[first : first + step] = columns[drawn].sum(axis=1)
    return sums


def percentiles(statistics: Array, level: float = 0.95) -> tuple[float, float]:
    """Return the bounds between which the share `level` of the statistics lies."""
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def holm_bonferroni(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for how many they are, in their order (Holm 1979).

    The i-th smallest of m, counted from 0, is multiplied by m - i; an adjusted value is no smaller than that
    of a smaller p, and at most 1.
    """
    order = np.argsort(values, kind="stable")
    raised = np.asarray(values, dtype=np.float64)[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return [float(p) for p in adjusted]


def cohen_h(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Cohen's h between two shares: the difference of twice the arcsines of their roots.

    `a` and `b` hold 0 or 1 for each query. Cohen, "Statistical Power Analysis", 1988, equation 6.2.1.

    Raises:
        ValueError: One is empty.
    """
    first, second = (2 * np.arcsin(np.sqrt(_column(values).mean())) for values in (a, b))
    return float(first - second)


BINS = 10


def calibration(confidences: Sequence[float], right: Sequence[bool]) -> list[dict[str, float]]:
    """Return the bins of a reliability diagram, 10 of equal width, without those that have no answer.

    Args:
        confidences: In [0, 1]; one on an edge belongs to the bin above it, 1 to the last.
        right: Whether each answer is right.

    Returns:
        A row for each bin: `from` (its lower edge), `n`, mean `confidence`, and `accuracy`.
    """
    members: dict[int, list[tuple[float, bool]]] = {}
    for pair in zip(confidences, right, strict=True):
        members.setdefault(min(int(pair[0] * BINS), BINS - 1), []).append(pair)
    return [_bin(place / BINS, rows) for place, rows in sorted(members.items())]


def calibration_by_count(confidences: Sequence[float], right: Sequence[bool]) -> list[dict[str, float]]:
    """Return as `calibration` does 10 bins of equal count, or one less or more; `from` is a bin's least one.

    Equal confidences may lie in two bins, in their order; of fewer than 10 answers each has a bin.
    """
    pairs = sorted(zip(confidences, right, strict=True), key=lambda pair: pair[0])
    parts = np.array_split(np.arange(len(pairs)), BINS)
    return [_bin(pairs[part[0]][0], [pairs[i] for i in part]) for part in parts if len(part)]


def calibration_error(bins: Sequence[Mapping[str, float]]) -> float:
    """Return the expected calibration error (Guo et al. 2017, equation 3): mean gap, weighed by answers."""
    total = sum(row["n"] for row in bins)
    return sum(row["n"] * abs(row["accuracy"] - row["confidence"]) for row in bins) / max(total, 1)


def _bin(least: float, rows: Sequence[tuple[float, bool]]) -> dict[str, float]:
    confidence, accuracy = fmean(c for c, _ in rows), fmean(r for _, r in rows)
    return {"from": least, "n": len(rows), "confidence": confidence, "accuracy": accuracy}
