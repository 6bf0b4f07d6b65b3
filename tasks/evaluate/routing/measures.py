"""The measures of routing, and their summary: means by method and group, contests, and rejection.

ir_measures computes them, a row a query; full coverage alone is ours. Rejection is whether a method's scores
tell the tasks that no skill serves from those that one serves.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.schemas import Qrel
from tasks.evaluate.measures.runs import latency, paired_tests, summarise
from tasks.evaluate.measures.statistics import (
    RECALL,
    ClusteredScores,
    calibration_by_count,
    calibration_error,
    cohen_h,
    separation,
)

DEPTH = 1000  # how deep rankings are looked at: SkillFlow's first stage keeps as many
RECALLS = (1, 5, 10, 20, 50, 100, 500, 1000)
PRECISIONS = (1, 5, 10, 50, 100, 500, 1000)
# Our names, and those of ir_measures (Success is what others call hit).
_LIBRARY = MappingProxyType({
    "hit@1": "Success@1", "hit@10": "Success@10", "mrr@10": "RR@10", "mrr": "RR", "ndcg@10": "nDCG@10",
    **{f"recall@{k}": f"R@{k}" for k in RECALLS},
    **{f"precision@{k}": f"P@{k}" for k in PRECISIONS},
})  # fmt: skip
MEASURES = (*_LIBRARY, "fc@10")  # every measure; those of `architecture.md`'s contract are among them


def fold(ranking: Iterable[str], copies: Mapping[str, str]) -> list[str]:
    """Return a ranking (ids, best first) in which each copy stands as its original, each id once."""
    return list(dict.fromkeys(copies.get(doc_id, doc_id) for doc_id in ranking))


def folded_qrels(qrels: Iterable[Qrel], copies: Mapping[str, str]) -> list[Qrel]:
    """Return judgements in which each copy stands as its original, with the highest relevance of both."""
    found: dict[tuple[str, str], int] = {}
    for query_id, doc_id, relevance in qrels:
        key = query_id, copies.get(doc_id, doc_id)
        found[key] = max(relevance, found.get(key, relevance))
    return [Qrel(*key, relevance) for key, relevance in found.items()]


def measure_rankings(qrels: Sequence[Qrel], rankings: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the measures of every query that has a ranking: `query_id`, and a column for each of `MEASURES`.

    An empty ranking has 0 throughout; ranks below `DEPTH` do not count. Gains of nDCG are linear, as in
    trec_eval. FC@10 is 1 if all relevant skills are among the first ten (SkillRouter, appendix A). Each
    ranked query has at least one relevant document, and each id is ranked once.

    Raises:
        WrongInput: ir_measures is not installed.
    """
    library = require_measures()
    judged = [library.Qrel(*qrel) for qrel in qrels if qrel.query_id in rankings]
    # Ties would be broken by id: so the score is the rank itself.
    run = [
        library.ScoredDoc(query_id, doc_id, float(-rank))
        for query_id, ranking in rankings.items()
        for rank, doc_id in enumerate(ranking[:DEPTH])
    ]
    named = {library.parse_measure(theirs): ours for ours, theirs in _LIBRARY.items()}
    values: dict[str, dict[str, Any]] = {query_id: {"query_id": query_id} for query_id in rankings}
    for found in library.iter_calc(list(named), judged, run):
        values[found.query_id][named[found.measure]] = found.value
    relevance: dict[str, dict[str, int]] = {}
    for query_id, doc_id, grade in qrels:
        relevance.setdefault(query_id, {})[doc_id] = grade
    for query_id, ranking in rankings.items():
        relevant = {doc_id for doc_id, grade in relevance[query_id].items() if grade > 0}
        values[query_id]["fc@10"] = float(bool(relevant) and relevant.issubset(ranking[:10]))
    schema = {"query_id": pl.String, **dict.fromkeys(MEASURES, pl.Float64)}
    return pl.DataFrame(list(values.values()), schema=schema)


def require_measures() -> Any:  # noqa: ANN401 (an optional package, loaded where something is measured)
    """Return the library that measures; `WrongInput` if it is not installed."""
    try:
        return importlib.import_module("ir_measures")
    except ModuleNotFoundError as error:
        msg = "routing is measured by the package ir-measures: pip install '.[evaluate]' in Skillery's folder"
        raise WrongInput(msg) from error


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

    For each `method` and `measure`, copies folded, there is beside `baseline` what `PairedTest` says, over
    the methods compared in that measure: drawn are the tasks, or clusters of them as `clusters_of` has it.
    `relative` is the difference as a share of the baseline's mean, None where that is 0. `wins`, `losses` and
    `ties` count tasks; `effect` is Cohen's h, of measures that are shares of tasks, else None: below 0.2
    negligible, below 0.5 small. A baseline that was not measured raises `WrongInput`.
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
    """Return how a method's scores of tasks and of negatives differ; None if there are no negatives.

    `rows` are the method's of `measure_method`, `negatives` those of `answer_negatives`, and `recall`, in (0,
    1], is the share of tasks that is to be routed.

    Returns:
        `queries`, `negatives`, `recall`, `excluded@1` (share of negatives at which the first skill is the one
        that they are not for; None if they name none), and for each of `SIGNALS` that the method gives, else
        None: what `separation` returns, `interval_over` (as `clusters_of`), `ece` and `reliability` of
        signals within [0, 1] (an answer is right if the first skill is relevant, and to negatives never), and
        `by_repo`, `separation` within each repository.
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
