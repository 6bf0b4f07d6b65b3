"""Rejection: whether a method's scores tell the tasks that no skill serves from those that one serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tasks.evaluate.measures.calibration import calibration_by_count, calibration_error
from tasks.evaluate.measures.separation import RECALL, ClusteredScores, separation
from tasks.evaluate.routing.bench import clusters_of

SIGNALS = ("score", "fit")

"""The score of the first skill, and another number for how well it fits, which few methods give."""


def summarise_rejection(
    rows: pl.DataFrame, negatives: pl.DataFrame, recall: float = RECALL
) -> dict[str, Any] | None:
    """Return how a method's scores of tasks and of negatives differ.

    Args:
        rows: The method's rows of `measure_method`; what each task needs is in the pool.
        negatives: Its rows of `answer_negatives`.
        recall: The share of tasks that is to be routed, in (0, 1].

    Returns:
        `queries`, `negatives`, `recall`, `excluded@1` (share of negatives at which the first skill is the one
        that they are not for; None if they name none), and for each of `SIGNALS` that the method gives, else
        None: what `separation` returns, `interval_over` (as `clusters_of`), `ece` and `reliability` of
        signals within [0, 1] (an answer is right if the first skill is relevant, and to negatives never),
        and `by_repo`, `separation` within each repository. None if there are no negatives.
    """
    if negatives.is_empty():
        return None
    tasks = rows.filter((pl.col("stage") == "") & pl.col("folded"))
    named = negatives.drop_nulls("skill")
    excluded = named["first"].eq_missing(named["skill"])
    return {
        "queries": tasks.height,
        "negatives": negatives.height,
        "recall": recall,
        "excluded@1": excluded.mean(),
        **{signal: _of_signal(tasks, negatives, signal, recall) for signal in SIGNALS},
    }


def _of_signal(
    tasks: pl.DataFrame, negatives: pl.DataFrame, signal: str, recall: float
) -> dict[str, Any] | None:
    if tasks[signal].null_count() or negatives[signal].null_count():
        return None
    values = [*tasks[signal], *negatives[signal]]
    bins = None
    if all(0 <= value <= 1 for value in values):
        bins = calibration_by_count(values, [*(tasks["hit@1"] > 0), *[False] * negatives.height])
    repos = sorted({*tasks["repo"].drop_nulls()} & {*negatives["repo"].drop_nulls()})
    return {
        **_separation(tasks, negatives, signal, recall),
        "ece": None if bins is None else calibration_error(bins),
        "reliability": bins,
        "by_repo": {
            repo: _separation(tasks.filter(repo=repo), negatives.filter(repo=repo), signal, recall)
            for repo in repos
        },
    }


def _separation(tasks: pl.DataFrame, negatives: pl.DataFrame, signal: str, recall: float) -> dict[str, Any]:
    about = ("query_id", "repo", "skill")
    over, clusters = clusters_of(pl.concat([tasks.select(about), negatives.select(about)]))
    found = separation(
        _scored(tasks, signal, clusters[: tasks.height]),
        _scored(negatives, signal, clusters[tasks.height :]),
        recall,
    )
    counts = {"queries": tasks.height, "negatives": negatives.height}
    return {**counts, **(found or {}), "interval_over": over}


def _scored(rows: pl.DataFrame, signal: str, clusters: Sequence[str]) -> ClusteredScores:
    return ClusteredScores(rows[signal].to_list(), clusters)
