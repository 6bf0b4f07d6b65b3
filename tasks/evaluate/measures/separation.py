"""Separation: whether a score is high for queries that something serves, and low for all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.evaluate.measures.statistics import Array, auroc, percentiles

# The share of served queries at which the false-route rate is measured, where no other is asked for.
RECALL = 0.95
_RESAMPLES, _SEED = 10_000, 42
# Resamples that are weighed at a time, so that memory does not grow with them.
_BLOCK = 500


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
    (0, 1], of the served queries is routed. The false-route rate is the share of unserved ones routed then.

    Returns:
        `auroc`, `threshold`, `false_route_rate`, and `ci95` of the first and the last by percentile bootstrap
        over clusters (10,000 resamples, seed 42). Each resample has a threshold of its own; one without
        queries of either side does not count. None if either side is empty.
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
    for _ in range(_RESAMPLES // _BLOCK):
        weights = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=_BLOCK)
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
