"""The bench of routing for the command: methods measured on tasks whose skills are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flows.commands.console import folder_at, progress, steps, write_report
from flows.commands.routing.methods import Methods, RoutingModels, require_methods, require_names
from flows.commands.routing.settings import expanded
from flows.settings import Settings, asked_llm
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.corpus.read import scan_corpus
from tasks.evaluate.measures.statistics import RECALL
from tasks.evaluate.routing.agents import (
    Expected,
    PassRates,
    expected_of,
    measured_agent,
    read_agents,
    scenario,
)
from tasks.evaluate.routing.agents import read_expectations as read_answers
from tasks.evaluate.routing.attention import attention_by_field, pairs_of
from tasks.evaluate.routing.bench import answer_negatives, measure_method, run_table
from tasks.evaluate.routing.data import (
    POOLS,
    PoolPart,
    RoutingBench,
    parts_of,
    read_copies,
    read_qrels,
    read_skills,
    read_tasks,
    require_judged,
)
from tasks.evaluate.routing.measures import (
    MEASURES,
    contest,
    require_measures,
    summarise_method,
    summarise_rejection,
)
from tasks.evaluate.routing.report import attention_markdown, draw_routing, routing_markdown

# Measured if no method is named: the methods that need no model beside the encoder.
USUAL = ("bm25-description", "bm25-full", "dense-description", "sentences", "rrf", "zsum", "default")
BASELINE = "zsum"
LLM = "llm"
_WARM = "Which skill fits?"  # asked before what is timed


class _Files(NamedTuple):
    """The files of a bench: tasks, judgements, skills, and copies and tasks that no skill serves, if any.

    `own` holds the skills that the bench comes with, `skills` others; of an id in two the bench's own counts.
    `distractors` are others that make a pool hard (SkillRouter, section 2.2). `answers` says what a task's
    answer must do.
    """

    queries: Path
    qrels: Path
    skills: Sequence[Path]
    copies: Path | None
    negatives: Path | None
    own: Path | None
    answers: Path | None
    distractors: Path | None = None


class _Measured(NamedTuple):
    """The rows of `measure_method` and of `answer_negatives`."""

    tasks: pl.DataFrame
    negatives: pl.DataFrame


def routing_bench(
    root: Root, settings: Settings, *, bench: Path | None = None, corpus: Path | None = None,
    queries: Path | None = None, qrels: Path | None = None, documents: Sequence[Path] | None = None,
    copies: Path | None = None, negatives: Path | None = None, distractors: Path | None = None,
    pool: Sequence[str] | None = None, recall: float = RECALL, method: Sequence[str] | None = None,
    sweep: Sequence[str] | None = None, baseline: str | None = None, agents: str | None = None,
    attention: bool = False, report: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Measure routing methods on a bench.

    The keywords are the options of `skillery evaluate routing`, whose help says what each is. The root keeps
    encoder, vectors and answers. `report` is a folder for `routing.md`, `.parquet` (the run) and `.png`.

    Returns `pools`, for each `pool` its `skills`, `methods` (rows of `summarise_method`, and `rejection` as
    of `summarise_rejection`), `contests` and `scenario`; the same of the first pool; `llm` (what an LLM was
    asked, or null); `attention` (rows of `attention_by_field`); `report` if there is a folder. Before
    anything is encoded, raises `WrongInput` if a file or an option cannot be used.
    """
    held_in = [*filter(None, (corpus, *(documents or ())))]
    files = _files_of(bench, held_in, queries, qrels, copies, negatives)._replace(distractors=distractors)
    wanted, base = _wanted(method, sweep, baseline)
    require_measures()
    require_methods(wanted, settings, root)
    given = _given(files)
    rates = read_agents(agents) if agents and agents != LLM else []
    expectations = _expectations(files.answers, settings) if agents == LLM else {}
    pools = _pools(pool, recall, files, given)
    if report is not None:
        folder_at(report, "--report")
    skills, parts = _parts(files, given, pools)
    with ExitStack() as held:
        models = RoutingModels(root, settings, held)
        # First, because a reranker that cannot be looked into is wrong use.
        looks = _attention(given, skills, models) if attention else []
        measured = _measured(parts, models, wanted)
        if expectations:
            rates = _answered(models, expected_of(given.tasks, given.qrels, skills, expectations))
        llm = models.llm_report()
    pools = _with_average(pools, parts, measured)
    summaries = [_summary(name, parts[name], measured[name], wanted, base, recall, rates) for name in pools]
    found: dict[str, Any] = {**summaries[0], "pools": summaries, "llm": llm, "attention": looks}
    if report is not None:
        found["report"] = _written(report, measured, summaries, looks)
    return found


def _wanted(
    method: Sequence[str] | None, sweep: Sequence[str] | None, baseline: str | None
) -> tuple[list[str], str]:
    """Return the methods to measure, and the one that others are compared with.

    Raises `WrongInput` if one of them is not known, or the baseline is not measured.
    """
    wanted = expanded(method or (() if sweep else USUAL), sweep or ())
    base = baseline or (expanded((), sweep)[0] if sweep else BASELINE)
    require_names([*wanted, base])
    if baseline not in (None, *wanted):
        raise WrongInput(f"--baseline {baseline} is not measured: name it by --method too")
    return list(wanted), base


def _answered(models: RoutingModels, cases: Sequence[Expected]) -> list[PassRates]:
    """Return how often the LLM that is set up passes tasks with and without their skills."""
    assert models.llm is not None  # noqa: S101 (for the types: it was asked for before)
    with steps("tasks answered", len(cases)) as step:
        return [measured_agent(models.llm, cases, lambda _done, _total: step())]


def _files_of(
    folder: Path | None, skills: Sequence[Path], queries: Path | None, qrels: Path | None,
    copies: Path | None, negatives: Path | None,
) -> _Files:  # fmt: skip
    """Return the files of a bench; those that are not given are the ones of its folder.

    Raises `WrongInput` if there are no queries, no qrels or no skills.
    """

    def held(name: str) -> Path | None:
        return folder / name if folder and (folder / name).exists() else None

    own = held("documents.parquet")
    queries, qrels = queries or held("queries.jsonl"), qrels or held("qrels.jsonl")
    if queries is None:
        raise _missing("--queries", "queries.jsonl", folder)
    if qrels is None:
        raise _missing("--qrels", "qrels.jsonl", folder)
    if not (skills or own):
        raise _missing("--corpus", "documents.parquet", folder)
    copies, negatives = copies or held("copies.jsonl"), negatives or held("negatives.jsonl")
    return _Files(queries, qrels, skills, copies, negatives, own, held("answers.jsonl"))


def _missing(option: str, name: str, folder: Path | None) -> WrongInput:
    if folder is None:
        return WrongInput(f"no {option} is given: name a file by it, or a folder with all files by --bench")
    return WrongInput(f"--bench {folder} holds no {name}: add it, or name a file by {option}")


def _pools(pool: Sequence[str] | None, recall: float, files: _Files, bench: RoutingBench) -> list[str]:
    if unknown := [name for name in pool or () if name not in POOLS]:
        raise WrongInput(f"unknown pool {unknown[0]!r}; choose some of {', '.join(POOLS)}")
    if not 0 < recall <= 1:
        raise WrongInput(f"--recall {recall:g}: give a share of the tasks, above 0 and at most 1")
    if pool:
        if files.distractors is None and {"easy", "hard"} & set(pool):
            msg = "--pool easy and hard differ in distractors: name a file with them by --distractors"
            raise WrongInput(msg)
        if "bench" in pool and files.own is None:
            msg = "--pool bench: the bench has no skills of its own; name a folder with them by --bench"
            raise WrongInput(msg)
        return list(dict.fromkeys(pool))
    apart = {
        "all": files.distractors is None,
        "easy": files.distractors is not None,
        "hard": files.distractors is not None,
        "bench": files.own is not None and bool(files.skills),
        "repository": files.own is not None and all(t.repo for t in (*bench.tasks, *bench.negatives)),
    }
    return [name for name in POOLS if apart[name]]


def _parts(
    files: _Files, bench: RoutingBench, pools: Sequence[str]
) -> tuple[pl.DataFrame, dict[str, list[PoolPart]]]:
    """Return all skills, and the parts of each pool; raises `WrongInput` if a task's skill is not there."""
    with progress("skills read") as report:
        more = [files.own, *files.skills, files.distractors]
        skills = read_skills([path for path in more if path], report)
    require_judged(bench.tasks, bench.qrels, skills, bench.copies)
    own = set(pl.concat(scan_corpus(files.own, [()])).collect()["doc_id"]) if files.own else set[str]()
    hard = set(read_skills([files.distractors])["doc_id"]) - own if files.distractors else set[str]()
    return skills, {pool: parts_of(pool, bench, skills, own, hard) for pool in pools}


def _measured(
    parts: Mapping[str, Sequence[PoolPart]], models: RoutingModels, wanted: Sequence[str]
) -> dict[str, _Measured]:
    benches = [part.bench for of_pool in parts.values() for part in of_pool]
    with steps("tasks routed", len(wanted) * sum(len(b.tasks) + len(b.negatives) for b in benches)) as step:
        return {pool: _of_pool(of_pool, models, wanted, step) for pool, of_pool in parts.items()}


def _given(files: _Files) -> RoutingBench:
    refused = read_tasks(files.negatives) if files.negatives else ()
    tasks, qrels = read_tasks(files.queries), read_qrels(files.qrels)
    return RoutingBench(tasks, qrels, read_copies(files.copies), refused)


def _with_average(
    pools: Sequence[str], parts: dict[str, list[PoolPart]], measured: dict[str, _Measured]
) -> list[str]:
    """Add the average of the easy and the hard pool, where both were measured; return all pools."""
    if not {"easy", "hard"} <= {*pools}:
        return [*pools]
    parts["average"], measured["average"] = parts["hard"], _averaged(measured["easy"], measured["hard"])
    return [*pools, "average"]


def _averaged(easy: _Measured, hard: _Measured) -> _Measured:
    """Return the mean of two pools task by task, without stages, and without negatives."""
    both = pl.concat([easy.tasks, hard.tasks]).filter(stage="")
    keys, values = ("method", "folded", "query_id"), ("milliseconds", *MEASURES)
    found = both.group_by(keys, maintain_order=True).agg(
        pl.col(values).mean(), pl.exclude(*keys, *values).first()
    )
    return _Measured(found.select(easy.tasks.columns), easy.negatives.clear())


def _of_pool(
    parts: Sequence[PoolPart], models: RoutingModels, wanted: Sequence[str], step: Callable[[], None]
) -> _Measured:
    tasks, negatives = [], []
    for bench, skills in parts:
        ready = Methods(models, skills)
        for name in wanted:
            method = ready.method(name)
            if bench.tasks:
                tasks.append(measure_method(bench, name, method, step, warm=_WARM))
            negatives.append(answer_negatives(bench, name, method, step))
    return _Measured(pl.concat(tasks), pl.concat(negatives))


def _summary(
    pool: str, parts: Sequence[PoolPart], measured: _Measured, wanted: Sequence[str], baseline: str,
    recall: float, agents: Sequence[PassRates],
) -> dict[str, Any]:  # fmt: skip
    methods = []
    for name in wanted:
        rows, negatives = measured.tasks.filter(method=name), measured.negatives.filter(method=name)
        methods.append({**summarise_method(rows), "rejection": summarise_rejection(rows, negatives, recall)})
    compared = baseline in wanted and len(wanted) > 1
    return {
        "pool": pool,
        "skills": sum(part.skills.height for part in parts),
        "methods": methods,
        "contests": contest(measured.tasks, baseline) if compared else [],
        "scenario": scenario(methods, agents) if agents else [],
    }


def _expectations(answers: Path | None, settings: Settings) -> dict[str, tuple[str, ...]]:
    if answers is None:
        msg = "--agents llm needs answers.jsonl, lines {query_id, assertions}, in the folder of --bench"
        raise WrongInput(msg)
    asked_llm(settings)
    if found := read_answers(answers):
        return found
    raise WrongInput(f"{answers}: no line says what an answer must do: give lines {{query_id, assertions}}")


def _attention(bench: RoutingBench, skills: pl.DataFrame, models: RoutingModels) -> list[dict[str, Any]]:
    reranker, limits = models.attending
    pairs = pairs_of(bench.tasks, bench.qrels, skills)
    if not pairs:
        raise WrongInput("--attention: no task's skill is among the skills by its own id")
    with steps("pairs read", len(pairs)) as step:
        return attention_by_field(reranker, pairs, limits, step)


def _written(
    folder: Path, measured: Mapping[str, _Measured], summaries: Sequence[dict[str, Any]],
    looks: Sequence[dict[str, Any]],
) -> list[str]:  # fmt: skip
    text = "\n".join([*map(routing_markdown, summaries), *([attention_markdown(looks)] if looks else [])])
    runs = [
        run_table(*(rows.with_columns(pool=pl.lit(pool)) for rows in found))
        for pool, found in measured.items()
    ]
    return write_report(folder, "routing", text, runs, partial(draw_routing, summaries[0]["methods"]))
