"""Measures routing methods for the command, on tasks whose skills are known."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from flows.commands.console import progress
from flows.commands.routing_methods import Methods, require_methods, require_names
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.routing.bench import RoutingBench, measure_method, summarise_method
from tasks.evaluate.routing.contests import RoutingContest, contest
from tasks.evaluate.routing.data import read_copies, read_qrels, read_skills, read_tasks, require_judged
from tasks.evaluate.routing.report import draw_routing, routing_markdown

USUAL = ("bm25-description", "bm25-full", "dense-description", "sentences", "rrf", "zsum", "default")

"""What is measured where no method is named: all that need no model beside the encoder."""

BASELINE = "zsum"


@dataclass(frozen=True, slots=True)
class BenchFiles:
    """Where a bench lies: tasks, judgements, all skills, and copies, of which there may be none."""

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
    """Return the table of routing methods on a bench; encoder, vectors and answers are kept below the root.

    With a folder it gets `routing.md`, `routing.parquet` (a row a task, method, stage and folding) and, where
    matplotlib is installed, `routing.png`.

    Args:
        root: Where vectors of texts are kept: a second run encodes the tasks alone.
        settings: Which encoder, how many threads a task has, and the language model.
        files: What is asked, of which skills.
        methods: Some of `flows.commands.routing_methods.METHODS`; None for `USUAL`.
        baseline: The method that the others are compared with, where it is measured beside others.
        folder: Where the report goes.

    Returns:
        `skills`, `methods` (rows as `summarise_method` has them), `contests`, `llm` (what a language model
        was asked, or null), and `report` with a folder.

    Raises:
        WrongInput: A file, a method, the baseline or the folder cannot be used; nothing is encoded then.
    """
    wanted = list(dict.fromkeys(methods or USUAL))
    require_names([*wanted, baseline])
    require_methods(wanted, settings)
    bench = RoutingBench(read_tasks(files.queries), read_qrels(files.qrels), read_copies(files.copies))
    made = None if folder is None else _folder(folder)
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
    return found if made is None else {**found, "report": _written(made, rows, summaries, contests, skills)}


def _measured(bench: RoutingBench, ready: Methods, wanted: Sequence[str]) -> pl.DataFrame:
    steps, total = count(1), len(wanted) * len(bench.tasks)
    with progress("tasks routed") as report:

        def step() -> None:
            report(next(steps), total)

        return pl.concat([_one(bench, name, ready, step) for name in wanted])


def _one(bench: RoutingBench, name: str, ready: Methods, step: Callable[[], None]) -> pl.DataFrame:
    return measure_method(bench, name, ready.method(name), step)


def _written(
    folder: Path,
    rows: pl.DataFrame,
    summaries: list[dict[str, Any]],
    contests: list[RoutingContest],
    skills: pl.DataFrame,
) -> list[str]:
    (folder / "routing.md").write_text(routing_markdown(summaries, contests, skills.height), "utf-8")
    rows.write_parquet(folder / "routing.parquet")
    files = ["routing.md", "routing.parquet"]
    try:
        draw_routing(summaries, folder / "routing.png")
        files.append("routing.png")
    except ModuleNotFoundError as error:
        sys.stderr.write(f"no picture: {error}; install it with: pip install 'skillery[draw]'\n")
    return [str(folder / name) for name in files]


def _folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"--report {folder} cannot be made ({error}): give a folder"
        raise WrongInput(msg) from error
    return folder
