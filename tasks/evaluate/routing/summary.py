"""The summary of a run of routing: means by method and group, contests with a baseline, and rejection.

Rejection is whether a method's scores tell the tasks that no skill serves from those that one serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from storage.errors import WrongInput
from tasks.evaluate.measures.runs import latency, paired_tests, summarise
from tasks.evaluate.measures.separation import RECALL, ClusteredScores, separation
from tasks.evaluate.measures.statistics import calibration_by_count, calibration_error, cohen_h
from tasks.evaluate.routing.measures import MEASURES

# What is said of groups of tasks.
GROUP_MEASURES = ("hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@50", "fc@10")
# The score of the first skill, and another number for how well it fits, which few methods give.
SIGNALS = ("score", "fit")
_SHARES = ("hit@1", "fc@10")  # of a task these are 0 or 1


def summarise_method(rows: pl.DataFrame) -> dict[str, Any]:
    """Return a method's row of the table, from the rows of `measure_method`.

    Means over tasks of all measures, copies folded; `ci95` holds percentile bootstrap intervals (10,000
    resamples, seed 42) over what `interval_over` names (`clusters_of`); `unfolded` the same without folding;
    `single` and `multi` are the tasks that need one skill and several; `by_length`, `by_distinctive` and
    `by_repo` are the bench's own groups; `stages` what each stage kept, for methods of several; `first_stage`
    on how many tasks the first skill is right by the `first` stage alone, by the `last` alone, by `both` and
    by `neither` (SkillRouter, table 9), None of one stage.
    """
    answer, stages = (
        rows.filter(pl.col("stage") == ""),
        rows.filter((pl.col("stage") != "") & pl.col("folded")),
    )
    folded, unfolded = answer.filter("folded"), answer.filter(~pl.col("folded"))
    several = pl.col("relevant") > 1
    return {
        "method": folded["method"][0],
        "budget": None,
        **_summary(folded, MEASURES),
        **_latency(folded),
        "unfolded": _summary(unfolded, MEASURES),
        "single": _summary(folded.filter(~several), GROUP_MEASURES),
        "multi": _summary(folded.filter(several), GROUP_MEASURES),
        **{f"by_{column}": _groups(folded, column) for column in ("length", "distinctive", "repo")},
        "stages": [
            {"stage": stage, "k": part["k"][0], **_summary(part, MEASURES), **_latency(part)}
            for (stage, _), part in stages.group_by("stage", "position", maintain_order=True)
        ],
        "first_stage": _decomposed(stages.sort("query_id")),
    }


def _decomposed(stages: pl.DataFrame) -> dict[str, int] | None:
    if stages.is_empty():
        return None
    first, last = (
        stages.filter(position=position)["hit@1"].to_numpy() > 0
        for position in (stages["position"].min(), stages["position"].max())
    )
    counted = {
        "both": first & last, "first": first & ~last, "last": last & ~first, "neither": ~(first | last),
    }  # fmt: skip
    return {kind: int(tasks.sum()) for kind, tasks in counted.items()}


def clusters_of(rows: pl.DataFrame) -> tuple[str, list[str]]:
    """Return what the tasks of rows are clustered by, and the cluster of each row.

    Tasks of one repository are alike: of several, where each task's is known, they are the clusters. Within
    one repository the skills are, that tasks need or are not for. Else each task is its own.
    """
    repos, skills = rows["repo"], rows["skill"]
    if repos.null_count():
        return "tasks", rows["query_id"].to_list()
    if repos.n_unique() > 1:
        return "repositories", repos.to_list()
    return "skills", skills.fill_null(rows["query_id"]).to_list()


def _summary(rows: pl.DataFrame, measures: Sequence[str]) -> dict[str, Any]:
    if rows.is_empty():
        return {"queries": 0}
    over, clusters = clusters_of(rows)
    values = {measure: rows[measure].to_list() for measure in measures}
    found = summarise(values, None if over == "tasks" else clusters)
    return {"queries": rows.height, **found, "interval_over": over}


def _latency(rows: pl.DataFrame) -> dict[str, float]:
    times = rows["milliseconds"].to_numpy()
    return {"mean_ms": float(times.mean()), **latency(times.tolist())}  # the papers tell means


def _groups(rows: pl.DataFrame, column: str) -> dict[str, Any]:
    known = rows.drop_nulls(column).sort(column)
    return {
        str(name): _summary(part, GROUP_MEASURES)
        for (name,), part in known.group_by(column, maintain_order=True)
    }


def contest(rows: pl.DataFrame, baseline: str) -> list[dict[str, Any]]:
    """Compare every other method with the baseline in `GROUP_MEASURES`, from rows of `measure_method`.

    Returns:
        For each `method` and `measure`, copies folded, beside `baseline`, what `PairedTest` says, over the
        methods compared in that measure: drawn are the tasks, or clusters of them as `clusters_of` has it.
        `relative` is the difference as a share of the baseline's mean, None where that is 0. `wins`, `losses`
        and `ties` count tasks; `effect` is Cohen's h, of measures that are shares of tasks,
        else None: below 0.2 negligible, below 0.5 small.

    Raises:
        WrongInput: The baseline was not measured.
    """
    answers = rows.filter((pl.col("stage") == "") & pl.col("folded")).sort("query_id")
    methods = rows["method"].unique(maintain_order=True).to_list()
    if baseline not in methods:
        msg = f"baseline {baseline!r} was not measured; measured were {', '.join(sorted(methods))}"
        raise WrongInput(msg)
    by_method = {name: answers.filter(method=name) for name in methods}
    base = by_method.pop(baseline)
    over, clusters = clusters_of(base)
    found = []
    for measure in GROUP_MEASURES:
        held = base[measure].to_list()
        values = {name: part[measure].to_list() for name, part in by_method.items()}
        tests = paired_tests(
            [(column, held) for column in values.values()], None if over == "tasks" else clusters
        )
        for (name, column), test in zip(values.items(), tests, strict=True):
            signs = [(a > b) - (a < b) for a, b in zip(column, held, strict=True)]
            found.append({
                "method": name, "baseline": baseline, "measure": measure, **test._asdict(),
                "relative": test.difference / mean if (mean := sum(held) / len(held)) else None,
                "wins": signs.count(1), "losses": signs.count(-1), "ties": signs.count(0),
                "effect": cohen_h(column, held) if measure in _SHARES else None,
            })  # fmt: skip
    return found


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
    served = ClusteredScores(tasks[signal].to_list(), clusters[: tasks.height])
    unserved = ClusteredScores(negatives[signal].to_list(), clusters[tasks.height :])
    counts = {"queries": tasks.height, "negatives": negatives.height}
    return {**counts, **(separation(served, unserved, recall) or {}), "interval_over": over}
