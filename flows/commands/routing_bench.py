"""The bench of routing for the command: methods measured on tasks whose skills are known."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from flows.commands.console import drawn, folder_at, progress
from flows.commands.routing_methods import Methods, require_methods, require_names
from flows.settings import Settings
from storage.root import Root
from tasks.evaluate.routing.bench import RoutingBench, measure_method, summarise_method
from tasks.evaluate.routing.contests import RoutingContest, contest
from tasks.evaluate.routing.data import read_copies, read_qrels, read_skills, read_tasks, require_judged
from tasks.evaluate.routing.report import draw_routing, routing_markdown

# Measured if no method is named: the methods that need no model beside the encoder.
USUAL = ("bm25-description", "bm25-full", "dense-description", "sentences", "rrf", "zsum", "default")
BASELINE = "zsum"


@dataclass(frozen=True, slots=True)
class BenchFiles:
    """The files of a bench: tasks, judgements, all skills, and copies, if there are any."""

    queries: Path
    qrels: Path
    skills: Sequence[Path]
    copies: Path | None = None


def routing_bench(
    root: Root,
    settings: Settings,
    files: BenchFiles,
    methods: Sequence[str] | None,
    baseline: str = BASELINE,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Measure routing methods on a bench.

    Args:
        root: The root that keeps the encoder, vectors and answers; a second run encodes only the tasks.
        settings: The encoder, the threads of a task, and the LLM.
        files: The files of the bench.
        methods: Some of `flows.commands.routing_methods.METHODS`; None for `USUAL`.
        baseline: The method that the others are compared with, if it is measured too.
        folder: A folder for `routing.md`, `routing.parquet` (a row a task, method, stage and folding) and, if
            matplotlib is installed, `routing.png`.

    Returns:
        `skills`, `methods` (rows of `summarise_method`), `contests`, `llm` (what an LLM was asked, or null),
        and `report` if there is a folder.

    Raises:
        WrongInput: A file, a method, the baseline or the folder cannot be used; nothing was encoded.
    """
    wanted = list(dict.fromkeys(methods or USUAL))
    require_names([*wanted, baseline])
    require_methods(wanted, settings)
    bench = RoutingBench(read_tasks(files.queries), read_qrels(files.qrels), read_copies(files.copies))
    if folder is not None:
        folder_at(folder, "--report")
    with progress("skills read") as report:
        skills = read_skills(files.skills, report)
    require_judged(bench.tasks, bench.qrels, skills, bench.copies)
    with ExitStack() as held:
        ready = Methods(root, settings, skills, held)
        rows = _measured(bench, ready, wanted)
        llm = ready.llm_report()
    contests = contest(rows, baseline) if baseline in wanted and len(wanted) > 1 else []
    summaries = [summarise_method(rows.filter(method=method)) for method in wanted]
    found: dict[str, Any] = {
        "skills": skills.height,
        "methods": summaries,
        "contests": [asdict(c) for c in contests],
        "llm": llm,
    }
    if folder is not None:
        found["report"] = _written(folder, rows, summaries, contests, skills)
    return found


def _measured(bench: RoutingBench, ready: Methods, wanted: Sequence[str]) -> pl.DataFrame:
    steps, total = count(1), len(wanted) * len(bench.tasks)
    with progress("tasks routed") as report:

        def step() -> None:
            report(next(steps), total)

        return pl.concat([measure_method(bench, name, ready.method(name), step) for name in wanted])


def _written(
    folder: Path,
    rows: pl.DataFrame,
    summaries: list[dict[str, Any]],
    contests: list[RoutingContest],
    skills: pl.DataFrame,
) -> list[str]:
    (folder / "routing.md").write_text(routing_markdown(summaries, contests, skills.height), "utf-8")
    rows.write_parquet(folder / "routing.parquet")
    pictures = drawn(lambda path: draw_routing(summaries, path), folder / "routing.png")
    return [str(file) for file in (folder / "routing.md", folder / "routing.parquet", *pictures)]
