"""The bench of routing: each method's ranking of each task, copies folded and not, and its latency."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from tasks.evaluate.measures.runs import long_table
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.data import RoutingBench
from tasks.evaluate.routing.measures import MEASURES, fold, folded_qrels, measure_rankings
from tasks.retrieve.baselines.stages import StageRanking

# Returns for a task each stage's ranking, at least one, of so many skills where the method sets no limit; the
# last stage's is the method's answer.
RoutingMethod = Callable[[str, int], Sequence[StageRanking]]


class RoutingAnswer(NamedTuple):
    """Ids, best first; the score of the first, and another number for how well it fits, if there are such."""

    doc_ids: Sequence[str]
    score: float | None = None
    fit: float | None = None


def whole(
    rank: Callable[[str, int], Sequence[str] | RoutingAnswer],
    *,
    encoder: Remembering | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RoutingMethod:
    """Return a method of one stage; encoding its task counts as long as it took when it was made.

    `rank` gives the ids of at most so many skills for a task, best first, or a `RoutingAnswer` with scores;
    `clock` is in seconds.
    """

    def run(task: str, depth: int) -> list[StageRanking]:
        spared, began = encoder.spared if encoder else 0.0, clock()
        ranking = rank(task, depth)
        seconds = clock() - began + (encoder.spared if encoder else 0.0) - spared
        found = ranking if isinstance(ranking, RoutingAnswer) else RoutingAnswer(ranking)
        return [StageRanking("", found.doc_ids, 1000 * seconds, score=found.score, fit=found.fit)]

    return run


_COLUMNS = (
    "method", "stage", "position", "k", "folded", "query_id", "length", "distinctive", "repo", "skill",
    "relevant", "score", "fit", "milliseconds", *MEASURES, "doc_ids", "scores",
)  # fmt: skip
_KEPT = 100  # candidates of a stage whose ids are kept
# The columns of `answer_negatives`.
NEGATIVES = pl.Schema({
    **dict.fromkeys(("method", "query_id", "repo", "skill", "first"), pl.String),
    **dict.fromkeys(("score", "fit"), pl.Float64),
})  # fmt: skip


def measure_method(
    bench: RoutingBench, name: str, method: RoutingMethod, step: Callable[[], None] = lambda: None, *,
    warm: str | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Return the measures of a method on each task: a row for each task, stage, and folding.

    Columns: method, stage ("" for the whole method's answer), position and k of the stage, folded, query_id,
    length, distinctive, repo, skill (the first that the task needs), relevant (how many it needs), score and
    fit (as `StageRanking`), milliseconds and those of `MEASURES`, and of stages not folded the `doc_ids` and
    `scores` of the best 100. The method is asked each task once, after the text `warm`, None: the first task,
    which is not timed; a model that remembers its answers needs another. `step` is called after each.
    """
    method(warm or bench.tasks[0].text, bench.depth)
    answers: dict[str, Sequence[StageRanking]] = {}
    for task in bench.tasks:
        answers[task.query_id] = method(task.text, bench.depth)
        step()
    stages = next(iter(answers.values()))
    last = len(stages) - 1
    frames = []
    for position, stage in enumerate(stages):
        found = {query_id: answer[position] for query_id, answer in answers.items()}
        if last:
            rows = _stage_rows(bench, found).join(_candidates(found), on=("query_id", "folded"), how="left")
            frames.append(rows.with_columns(stage=pl.lit(stage.stage), position=position))
        if position == last:
            whole_time = {q: sum(part.milliseconds for part in answer) for q, answer in answers.items()}
            rows = _stage_rows(bench, found, whole_time)
            frames.append(rows.with_columns(stage=pl.lit(""), position=position))
    rows = pl.concat([*frames, pl.DataFrame(schema=_CANDIDATES)], how="diagonal")
    rows = rows.with_columns(method=pl.lit(name)).join(_about(bench), on="query_id", how="left")
    return rows.select(_COLUMNS)


_CANDIDATES = pl.Schema([
    ("query_id", pl.String()), ("folded", pl.Boolean()), ("doc_ids", pl.List(pl.String)),
    ("scores", pl.List(pl.Float64)),
])  # fmt: skip


def _candidates(found: Mapping[str, StageRanking]) -> pl.DataFrame:
    rows = []
    for query_id, stage in found.items():
        ids = list(stage.doc_ids[:_KEPT])
        rows.append((query_id, False, ids, [*stage.scores, *[None] * len(ids)][: len(ids)]))
    return pl.DataFrame(rows, _CANDIDATES, orient="row")


def answer_negatives(
    bench: RoutingBench, name: str, method: RoutingMethod, step: Callable[[], None] = lambda: None
) -> pl.DataFrame:
    """Return what a method answers to each of the bench's negatives; `step` is called after each.

    Columns: method, query_id, repo, skill (the one that the task is not for), first (the skill ranked first),
    both a copy as its original, score and fit (as `StageRanking`).
    """
    rows = []
    for task in bench.negatives:
        *_, last = method(task.text, bench.depth)
        first = next(iter(fold(last.doc_ids, bench.copies)), None)
        no, *_ = (*fold([task.not_doc_id] if task.not_doc_id else [], bench.copies), None)
        rows.append((name, task.query_id, task.repo, no, first, last.score, last.fit))
        step()
    return pl.DataFrame(rows, NEGATIVES, orient="row")


_LIMITS = {
    "query_id": pl.String, "milliseconds": pl.Float64, "k": pl.Int64, "score": pl.Float64, "fit": pl.Float64,
}  # fmt: skip


def _stage_rows(
    bench: RoutingBench, found: Mapping[str, StageRanking], times: Mapping[str, float] | None = None
) -> pl.DataFrame:
    frames = []
    for folded in (True, False):
        copies = bench.copies if folded else {}
        rankings = {query_id: fold(stage.doc_ids, copies) for query_id, stage in found.items()}
        qrels = folded_qrels(bench.qrels, copies)
        frames.append(measure_rankings(qrels, rankings).with_columns(folded=pl.lit(folded)))
    limits = pl.DataFrame(
        [
            (
                query_id,
                stage.milliseconds if times is None else times[query_id],
                stage.k,
                stage.score,
                stage.fit,
            )
            for query_id, stage in found.items()
        ],
        schema=_LIMITS,
        orient="row",
    )
    return pl.concat(frames).join(limits, on="query_id", how="left")


def _about(bench: RoutingBench) -> pl.DataFrame:
    relevant: dict[str, list[str]] = {}
    for query_id, doc_id, relevance in bench.qrels:
        relevant.setdefault(query_id, []).extend([doc_id] * (relevance > 0))
    schema: dict[str, Any] = dict.fromkeys(("query_id", "length", "distinctive", "repo", "skill"), pl.String)
    rows = [
        (t.query_id, t.length, t.distinctive, t.repo, needed[0], len(needed))
        for t in bench.tasks
        for needed in [relevant[t.query_id]]
    ]
    return pl.DataFrame(rows, schema={**schema, "relevant": pl.Int64}, orient="row")


def run_table(rows: pl.DataFrame, negatives: pl.DataFrame) -> pl.DataFrame:
    """Return the long table of rows of `measure_method` and `answer_negatives`, each with its `pool`.

    Of each stage it has the ids (`doc_id`), ranks (`candidate`) and scores of what it kept (SkillFlow, tables
    13 to 15).
    """
    values = ("score", "fit", "milliseconds")
    about = rows.select("pool", "method", "stage", "position", "query_id", "doc_ids", "scores")
    kept = about.drop_nulls("doc_ids").explode("doc_ids", "scores").rename({"doc_ids": "doc_id"})
    rank = pl.int_range(1, pl.len() + 1).over("pool", "method", "position", "query_id")
    kept = kept.with_columns(candidate=rank, candidate_score="scores").drop("scores")
    found = [
        long_table("routing", rows.drop("doc_ids", "scores"), [*values, *MEASURES]),
        long_table("routing", kept.drop_nulls("doc_id"), ["candidate", "candidate_score"]),
        long_table("routing", negatives.with_columns(negative=True), values[:2]),
    ]
    return pl.concat(found, how="diagonal")
