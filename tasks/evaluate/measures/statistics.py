"""Statistics over queries: bootstrap intervals, paired tests, p of several tests, AUROC, calibration.

The bootstrap is Efron's ("Bootstrap methods", Annals of Statistics 1979): queries are drawn with replacement,
10,000 times by seed 42, so that the same values always have the same interval. Calibration says in ten bins
whether answers are as often right as their confidence says; separation, whether a score is high for queries
that something serves, and low for all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_RESAMPLES, _SEED = 10_000, 42
# Resamples are drawn this many numbers at a time, so that memory does not grow with the queries.
_BLOCK = 2_000_000


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of values, one a query; ValueError if there is none."""
    return percentiles(_resampled(_column(values))[:, 0] / len(values))


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
    a: Sequence[float], b: Sequence[float], *, level: float = 0.95, clusters: Sequence[str] | None = None
) -> tuple[float, float, float, float]:
    """Return the mean of `a - b` over queries, its percentile interval, and a two-sided p-value.

    Queries are drawn with both their values; with `clusters`, the one of each query, whole clusters are. p is
    twice the smaller share of resampled differences on either side of 0, at most 1 and at least 1 / 10,000,
    and with c clusters `2 / c**c`: there are only `c**c` different draws of them. Errors are those of
    `bootstrap_interval`, and ValueError if two arguments differ in length.
    """
    _check_pairs(a, b)
    difference, least = _column(a) - _column(b), 1 / _RESAMPLES
    if clusters is None:
        means = _resampled(difference)[:, 0] / max(len(a), 1)
    else:
        _check_pairs(a, clusters)
        columns = cluster_sums([difference[:, 0].tolist(), [1.0] * len(a)], clusters)
        sums = _resampled(columns)
        means, least = sums[:, 0] / sums[:, 1], max(least, 2.0 * len(columns) ** -float(len(columns)))
    low, high = percentiles(means, level)
    side = min(float((means <= 0).mean()), float((means >= 0).mean()))
    return float(difference.mean()), low, high, min(1.0, max(2 * side, least))


def wilcoxon(a: Sequence[float], b: Sequence[float]) -> tuple[float, int, float]:
    """Return the statistic W of the signed-rank test, the number of pairs that differ, and a two-sided p.

    Pairs without a difference are left out (Wilcoxon 1945); where none differs, W is 0 and p is 1. Raises
    ValueError if the two differ in length.
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


def _resampled(columns: Array) -> Array:
    """Return the sums of each resample, shape `(10,000, m)`, of `columns` with shape `(n, m)`."""
    if not len(columns):
        raise ValueError("there are no values to resample")
    random, n = np.random.default_rng(_SEED), len(columns)
    sums = np.empty((_RESAMPLES, columns.shape[1]))
    step = max(1, _BLOCK // n)
    for first in range(0, _RESAMPLES, step):
        drawn = random.integers(0, n, size=(min(step, _RESAMPLES - first), n))
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

    `a` and `b` hold 0 or 1 for each query, at least one. Cohen, "Statistical Power Analysis", 1988, equation
    6.2.1.
    """
    first, second = (2 * np.arcsin(np.sqrt(_column(values).mean())) for values in (a, b))
    return float(first - second)


BINS = 10


def calibration(confidences: Sequence[float], right: Sequence[bool]) -> list[dict[str, float]]:
    """Return the bins of a reliability diagram, 10 of equal width, without those that have no answer.

    A confidence, in [0, 1], on an edge belongs to the bin above it, 1 to the last. A bin has `from` (its
    lower edge), `n`, mean `confidence`, and `accuracy`.
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


# The share of served queries at which the false-route rate is measured, where no other is asked for.
RECALL = 0.95
# Resamples that are weighed at a time, so that memory does not grow with them.
_DRAWN_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ClusteredScores:
    """The score of each query, and the cluster of each; queries of one cluster are alike."""

    scores: Sequence[float]
    clusters: Sequence[str]


def separation(
    served: ClusteredScores, unserved: ClusteredScores, recall: float = RECALL
) -> dict[str, Any] | None:
    """Return how well a score separates queries that something serves from those that nothing serves.

    A query is routed if its score reaches a threshold: the highest by which at least the share `recall`, in
    (0, 1], of the served queries is routed. `false_route_rate` is the share of unserved ones routed then.
    Beside it and `auroc` stand `threshold`, and `ci95` of both by percentile bootstrap over clusters (10,000
    resamples, seed 42). Each resample has a threshold of its own; one without queries of either side does not
    count. None if either side is empty.
    """
    area = auroc(served.scores, unserved.scores)
    if area is None:
        return None
    high, low = (np.asarray(side.scores, dtype=np.float64) for side in (served, unserved))
    thresholds, rates = _routed(high, low, np.ones((1, len(high))), np.ones((1, len(low))), recall)
    return {
        "auroc": area,
        "threshold": float(thresholds[0]),
        "false_route_rate": float(rates[0]),
        "ci95": _intervals(high, low, [*served.clusters, *unserved.clusters], recall),
    }


def _intervals(high: Array, low: Array, clusters: Sequence[str], recall: float) -> dict[str, list[float]]:
    names, places = np.unique(clusters, return_inverse=True)
    of_high, of_low = places[: len(high)], places[len(high) :]
    wins = _wins(high, low, of_high, of_low, len(names))
    counts = [np.bincount(at, minlength=len(names)) for at in (of_high, of_low)]
    random, areas, rates = np.random.default_rng(_SEED), [], []
    for _ in range(_RESAMPLES // _DRAWN_AT_ONCE):
        weights = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=_DRAWN_AT_ONCE)
        pairs = (weights @ counts[0]) * (weights @ counts[1])
        # A resample without queries of either side has nothing to separate.
        weights, pairs = weights[pairs > 0], pairs[pairs > 0]
        areas.append(((weights @ wins) * weights).sum(axis=1) / pairs)
        rates.append(_routed(high, low, weights[:, of_high], weights[:, of_low], recall)[1])
    parts = {"auroc": areas, "false_route_rate": rates}
    return {name: list(percentiles(np.concatenate(found))) for name, found in parts.items()}


def _wins(
    high: Array, low: Array, of_high: npt.NDArray[np.int64], of_low: npt.NDArray[np.int64], clusters: int
) -> Array:
    """Return for each pair of clusters, `(served, unserved)`, in how many pairs the served is higher."""
    apart = high[:, None] - low[None, :]
    won, identity = (apart > 0) + 0.5 * (apart == 0), np.eye(clusters)
    return np.asarray(identity[of_high].T @ won @ identity[of_low])


def _routed(
    high: Array, low: Array, times_high: npt.NDArray[Any], times_low: npt.NDArray[Any], recall: float
) -> tuple[Array, Array]:
    """Return threshold and false-route rate of each resample, a row of counts of queries."""
    order = np.argsort(-high, kind="stable")
    kept = np.cumsum(times_high[:, order], axis=1)
    # The least number of queries that is the share; a hair less, because products of shares are not exact.
    needed = np.ceil(recall * kept[:, -1:] - 1e-9)
    thresholds = high[order][np.argmax(kept >= needed, axis=1)]
    reached = low[None, :] >= thresholds[:, None]
    return thresholds, (reached * times_low).sum(axis=1) / times_low.sum(axis=1)
