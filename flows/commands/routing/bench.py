"""The bench of routing for the command: methods measured on tasks whose skills are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flows.commands.console import drawn, folder_at, progress
from flows.commands.routing.methods import Methods, RoutingModels, require_methods, require_names
from flows.commands.routing.variants import expanded
from flows.settings import Settings, llm_options
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.corpus.read import scan_corpus
from tasks.evaluate.measures.separation import RECALL
from tasks.evaluate.routing.agent import Expected, expected_of, measured_agent, read_expectations
from tasks.evaluate.routing.attention import attention_by_field, attention_table, pairs_of
from tasks.evaluate.routing.bench import RoutingBench, answer_negatives, measure_method, summarise_method
from tasks.evaluate.routing.contests import contest
from tasks.evaluate.routing.data import read_copies, read_qrels, read_skills, read_tasks, require_judged
from tasks.evaluate.routing.measures import require_measures
from tasks.evaluate.routing.pools import POOLS, PoolPart, parts_of
from tasks.evaluate.routing.rejection import summarise_rejection
from tasks.evaluate.routing.report import draw_routing, routing_markdown
from tasks.evaluate.routing.scenario import PassRates, read_agents, scenario

# Measured if no method is named: the methods that need no model beside the encoder.
USUAL = ("bm25-description", "bm25-full", "dense-description", "sentences", "rrf", "zsum", "default")
BASELINE = "zsum"
LLM = "llm"


@dataclass(frozen=True, slots=True)
class BenchFiles:
    """The files of a bench: tasks, judgements, skills, and copies and tasks that no skill serves, if any.

    `own` holds the skills that the bench comes with, `skills` others; `answers` what a task's answer must do.
    """

    queries: Path
    qrels: Path
    skills: Sequence[Path] = ()
    copies: Path | None = None
    negatives: Path | None = None
    own: Path | None = None
    answers: Path | None = None

    @property
    def all_skills(self) -> list[Path]:
        """All files of skills; of an id in two the bench's own counts."""
        return [*([self.own] if self.own else []), *self.skills]


@dataclass(frozen=True)
class RoutingWishes:
    """What to measure.

    Args:
        methods: Some of `flows.commands.routing.methods.METHODS`, or variants of them; None for `USUAL`, or
            for what the sweeps name.
        baseline: The method that the others are compared with, one of those measured; None for `BASELINE`,
            if it is measured, or the first of the sweeps.
        pools: Some of `POOLS`; None for those that a bench's own skills and repositories tell apart.
        recall: The share of tasks, above 0 and at most 1, at which false routes are counted.
        folder: A folder for `routing.md`, `routing.parquet` (a row a task, pool, method, stage and folding),
            `negatives.parquet` (a row a task that no skill serves, pool and method) and, if matplotlib is
            installed, `routing.png` of the first pool.
        sweeps: Names of `flows.commands.routing.variants.SWEEPS`, whose variants are measured too.
        agents: A file of agents, or `skillsbench`: their pass rates (`tasks.evaluate.routing.scenario`); or
            `llm`: those of the LLM that is set up, measured by what the bench expects of answers.
        attention: Whether to see where the causal reranker of the settings looks.
    """

    methods: Sequence[str] | None = None
    baseline: str | None = None
    pools: Sequence[str] | None = None
    recall: float = RECALL
    folder: Path | None = None
    sweeps: Sequence[str] = ()
    agents: str | None = None
    attention: bool = False

    @functools.cached_property
    def wanted(self) -> list[str]:
        """The methods, each once; raises `WrongInput` if a sweep is not known."""
        return expanded(self.methods or (() if self.sweeps else USUAL), self.sweeps)

    @property
    def compared_with(self) -> str:
        """The baseline."""
        if self.baseline is not None:
            return self.baseline
        return expanded((), self.sweeps)[0] if self.sweeps else BASELINE


def files_of(
    folder: Path | None,
    skills: Sequence[Path],
    queries: Path | None = None,
    qrels: Path | None = None,
    copies: Path | None = None,
    negatives: Path | None = None,
) -> BenchFiles:
    """Return the files of a bench; those that are not given are the ones of its folder.

    A folder holds `queries.jsonl` and `qrels.jsonl`, and may hold `documents.parquet`, `copies.jsonl`,
    `negatives.jsonl` and `answers.jsonl`.

    Raises:
        WrongInput: There are no queries, no qrels or no skills.
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
    return BenchFiles(queries, qrels, skills, copies, negatives, own, held("answers.jsonl"))


def _missing(option: str, name: str, folder: Path | None) -> WrongInput:
    if folder is None:
        return WrongInput(f"no {option} is given: name a file by it, or a folder with all files by --bench")
    return WrongInput(f"--bench {folder} holds no {name}: add it, or name a file by {option}")


class _Measured(NamedTuple):
    """The rows of `measure_method` and of `answer_negatives`."""

    tasks: pl.DataFrame
    negatives: pl.DataFrame


def routing_bench(root: Root, settings: Settings, files: BenchFiles, wishes: RoutingWishes) -> dict[str, Any]:
    """Measure routing methods on a bench.

    `root` keeps the encoder, vectors and answers, so that a second run encodes only the tasks; `settings` say
    the encoder, the threads of a task, and the LLM.

    Returns:
        `pools`, for each `pool` its `skills`, `methods` (rows of `summarise_method`, and `rejection` as of
        `summarise_rejection`), `contests` and `scenario`; the same of the first pool; `llm` (what an LLM was
        asked, or null); `attention` (rows of `attention_by_field`); and `report` if there is a folder.

    Raises:
        WrongInput: A file or a wish cannot be used; nothing was encoded.
    """
    require_names([*wishes.wanted, wishes.compared_with])
    if wishes.baseline not in (None, *wishes.wanted):
        msg = f"--baseline {wishes.baseline} is not measured: name it by --method too"
        raise WrongInput(msg)
    require_measures()
    require_methods(wishes.wanted, settings, root)
    bench = _read_bench(files)
    agents = read_agents(wishes.agents) if wishes.agents and wishes.agents != LLM else []
    expectations = _expectations(files, settings) if wishes.agents == LLM else {}
    pools = _pools(wishes, files, bench)
    if wishes.folder is not None:
        folder_at(wishes.folder, "--report")
    with progress("skills read") as report:
        skills = read_skills(files.all_skills, report)
    require_judged(bench.tasks, bench.qrels, skills, bench.copies)
    own = set(pl.concat(scan_corpus(files.own, [()])).collect()["doc_id"]) if files.own else set[str]()
    parts = {pool: parts_of(pool, bench, skills, own) for pool in pools}
    with ExitStack() as held:
        models = RoutingModels(root, settings, held)
        # First, because a reranker that cannot be looked into is wrong use.
        looks = _attention(bench, skills, models) if wishes.attention else []
        measured = _measured(parts, models, wishes.wanted)
        if expectations:
            agents = [_agent(models, expected_of(bench.tasks, bench.qrels, skills, expectations))]
        llm = models.llm_report()
    summaries = [_summary(pool, parts[pool], measured[pool], wishes, agents) for pool in pools]
    found: dict[str, Any] = {**summaries[0], "pools": summaries, "llm": llm, "attention": looks}
    if wishes.folder is not None:
        found["report"] = _written(wishes.folder, measured, summaries, looks)
    return found


def _read_bench(files: BenchFiles) -> RoutingBench:
    tasks, qrels, copies = read_tasks(files.queries), read_qrels(files.qrels), read_copies(files.copies)
    negatives = read_tasks(files.negatives) if files.negatives else ()
    return RoutingBench(tasks, qrels, copies, negatives)


def _pools(wishes: RoutingWishes, files: BenchFiles, bench: RoutingBench) -> list[str]:
    if unknown := [pool for pool in wishes.pools or () if pool not in POOLS]:
        msg = f"unknown pool {unknown[0]!r}; choose some of {', '.join(POOLS)}"
        raise WrongInput(msg)
    if not 0 < wishes.recall <= 1:
        msg = f"--recall {wishes.recall:g}: give a share of the tasks, above 0 and at most 1"
        raise WrongInput(msg)
    if wishes.pools:
        if "bench" in wishes.pools and files.own is None:
            msg = "--pool bench: the bench has no skills of its own; name a folder with them by --bench"
            raise WrongInput(msg)
        return list(dict.fromkeys(wishes.pools))
    apart = {
        "all": True,
        "bench": files.own is not None and bool(files.skills),
        "repository": files.own is not None and all(t.repo for t in (*bench.tasks, *bench.negatives)),
    }
    return [pool for pool in POOLS if apart[pool]]


def _measured(
    parts: Mapping[str, Sequence[PoolPart]], models: RoutingModels, wanted: Sequence[str]
) -> dict[str, _Measured]:
    benches = [part.bench for of_pool in parts.values() for part in of_pool]
    steps, total = count(1), len(wanted) * sum(len(b.tasks) + len(b.negatives) for b in benches)
    with progress("tasks routed") as report:

        def step() -> None:
            report(next(steps), total)

        return {pool: _of_pool(of_pool, models, wanted, step) for pool, of_pool in parts.items()}


def _of_pool(
    parts: Sequence[PoolPart], models: RoutingModels, wanted: Sequence[str], step: Callable[[], None]
) -> _Measured:
    tasks, negatives = [], []
    for bench, skills in parts:
        ready = Methods(models, skills)
        for name in wanted:
            method = ready.method(name)
            if bench.tasks:
                tasks.append(measure_method(bench, name, method, step))
            negatives.append(answer_negatives(bench, name, method, step))
    return _Measured(pl.concat(tasks), pl.concat(negatives))


def _summary(
    pool: str,
    parts: Sequence[PoolPart],
    measured: _Measured,
    wishes: RoutingWishes,
    agents: Sequence[PassRates],
) -> dict[str, Any]:
    rows, wanted = measured.tasks, wishes.wanted
    methods = []
    for name in wanted:
        own, negatives = rows.filter(method=name), measured.negatives.filter(method=name)
        rejection = summarise_rejection(own, negatives, wishes.recall)
        methods.append({**summarise_method(own), "rejection": rejection})
    compared = wishes.compared_with in wanted and len(wanted) > 1
    contests = contest(rows, wishes.compared_with) if compared else []
    return {
        "pool": pool,
        "skills": sum(part.skills.height for part in parts),
        "methods": methods,
        "contests": [asdict(one) for one in contests],
        "scenario": scenario(methods, agents) if agents else [],
    }


def _expectations(files: BenchFiles, settings: Settings) -> dict[str, tuple[str, ...]]:
    if files.answers is None:
        msg = "--agents llm needs answers.jsonl, lines {query_id, assertions}, in the folder of --bench"
        raise WrongInput(msg)
    llm_options(settings, "llm")
    if found := read_expectations(files.answers):
        return found
    msg = f"{files.answers}: no line says what an answer must do: give lines {{query_id, assertions}}"
    raise WrongInput(msg)


def _agent(models: RoutingModels, cases: Sequence[Expected]) -> PassRates:
    llm = models.llm
    assert llm is not None  # noqa: S101 (for the types: it was asked for before)
    with progress("tasks answered") as report:
        return measured_agent(llm, cases, report)


def _attention(bench: RoutingBench, skills: pl.DataFrame, models: RoutingModels) -> list[dict[str, Any]]:
    reranker, limits = models.attending
    pairs = pairs_of(bench.tasks, bench.qrels, skills)
    if not pairs:
        msg = "--attention: no task's skill is among the skills by its own id"
        raise WrongInput(msg)
    steps = count(1)
    with progress("pairs read") as report:
        return attention_by_field(reranker, pairs, limits, lambda: report(next(steps), len(pairs)))


def _written(
    folder: Path,
    measured: Mapping[str, _Measured],
    summaries: Sequence[dict[str, Any]],
    looks: Sequence[dict[str, Any]],
) -> list[str]:
    text = "\n".join(map(routing_markdown, summaries))
    if looks:
        text += f"\n# Where the reranker looks\n\n{attention_table(looks)}\n"
    (folder / "routing.md").write_text(text, "utf-8")
    rows = [found.tasks.with_columns(pool=pl.lit(pool)) for pool, found in measured.items()]
    pl.concat(rows).write_parquet(folder / "routing.parquet")
    files = [folder / "routing.md", folder / "routing.parquet"]
    negatives = [found.negatives.with_columns(pool=pl.lit(pool)) for pool, found in measured.items()]
    if (asked := pl.concat(negatives)).height:
        files.append(folder / "negatives.parquet")
        asked.write_parquet(files[-1])
    first = summaries[0]["methods"]
    files += drawn(lambda path: draw_routing(first, path), folder / "routing.png")
    return [str(file) for file in files]
