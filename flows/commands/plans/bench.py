"""The bench of plans for the command: methods measured on requests whose steps are known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, steps, write_report
from flows.commands.plans.llm import measured_llm
from flows.commands.queries import open_index
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.compose.bench import MethodRun, paraphrased, run_method, run_table, summarise_methods
from tasks.evaluate.compose.feedback import draw_rounds, feedback, rounds_of, simulated, when_right
from tasks.evaluate.compose.hidden_rows import (
    TakenRows,
    left_out_share,
    most_needed,
    needing,
    require_servers,
    rows_by_id,
    transfer,
    without_categories,
    without_gold,
)
from tasks.evaluate.compose.llm_methods import llm_methods
from tasks.evaluate.compose.methods import (
    DEFAULT,
    METHODS,
    NEED_BODIES,
    NEED_DESCRIPTIONS,
    NEED_ENDPOINT,
    VANILLA,
    Asking,
    PlanMethod,
    require_methods,
)
from tasks.evaluate.compose.report import compose_markdown
from tasks.evaluate.compose.requests import KnownRequest, read_categories, read_requests
from tasks.evaluate.compose.row_vectors import NO_BODIES, RowVectors
from tasks.evaluate.measures.runs import write_run
from tasks.models.llm.ask import Llm
from tasks.retrieve.served_index import ServedIndex

USUAL = (DEFAULT, VANILLA)
_SHARE = 0.2  # of rows that a report leaves out, as SkillWeaver's section 7.9
_SURE = (DEFAULT, "gold-steps", "gold-dense")  # whose confidence a report measures


@dataclass(frozen=True, slots=True)
class _Bench:
    """What is measured, checked: requests, the index, methods by name, and what is taken from the index."""

    asking: Asking
    requests: Sequence[KnownRequest]
    methods: Mapping[str, PlanMethod]
    baseline: str
    asked: Sequence[str]  # methods that are wanted for themselves, not as the baseline alone
    skipped: Mapping[str, str]
    rows: Mapping[str, frozenset[str]]  # categories that count, by id
    taken: Sequence[TakenRows]
    sure: Sequence[str]  # methods whose confidence is measured
    seed: int
    whole: bool  # all that a report shows


def plans_bench(
    root: Root,
    settings: Settings,
    queries: Path,
    *,
    methods: Sequence[str] | None = None,
    baseline: str = "commas",
    categories: Path | None = None,
    report: Path | None = None,
    without_category: Sequence[str] = (),
    leave_out: float | None = None,
    seed: int = 42,
    hide_gold: bool = False,
    answers: Root | None = None,
) -> dict[str, Any]:
    """Measure methods that plan on requests whose steps are known, with what a root serves.

    The keywords are the options of `skillery evaluate compose`, whose help says what each is; `hide_gold` is
    `--without-gold`. `report` is a folder for `compose.md`, `compose.json`, `compose.parquet` (the run) and,
    where matplotlib is, `compose.png`. Answers of the language model are kept below `answers`, else `root`.

    Returns:
        `queries`, `baseline`, `seed`, `served` (rows), `methods` (rows of `summarise_methods`), `skipped`
        (why a report left a method out); `without_gold` (by method) and `transfer` (rows with `method`),
        empty where not wanted; `llm`, the account of the language model, None if none was asked. With a
        report also `rounds`, `feedback`, `when_right` (by method), `simulation`, and `report`, the files
        written.

    Raises:
        WrongInput: A file, a method, a category, a share or the folder cannot be used; nothing was measured.
        NotPublished: Nothing is served.
        LlmDenied: The server of the language model denies access.
    """
    wanted = report is not None or not {*(methods or ()), baseline}.isdisjoint(NEED_ENDPOINT)
    with measured_llm(answers or root, settings, wanted=wanted) as llm:
        known = {**METHODS, **(llm_methods(llm, settings.compose_certainty) if llm else {})}
        names = [*(methods or (known if report else USUAL)), baseline]
        require_methods(names, known)
        counted = read_categories(categories)
        requests = read_requests(queries, counted)
        if hide_gold:
            require_servers(requests, "--without-gold")
        index = open_index(root, settings)
        rows = rows_by_id(index, counted)
        skipped = _skipped(index, requests, [*(methods or ()), baseline])
        if report is not None:
            folder_at(report, "--report")
            names = [*USUAL, *names]
        chosen = {name: known[name] for name in dict.fromkeys(names) if name not in skipped}
        asked = [name for name in chosen if name in (methods or USUAL)]
        bench = _Bench(
            Asking(index, RowVectors(index), counted), requests, chosen, baseline, asked,
            skipped if report else {}, rows,
            _taken(requests, rows, without_category, leave_out, seed, whole=report is not None),
            _sure(requests, chosen) if report else asked if hide_gold else [], seed, report is not None,
        )  # fmt: skip
        found, runs = _found(bench, llm)
    return found if report is None else {**found, "report": _written(report, found, runs)}


def _written(report: Path, found: dict[str, Any], runs: Mapping[str, MethodRun]) -> list[str]:
    """Write the report of a bench; return its files."""
    (report / "compose.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")
    files = write_report(
        report, "compose", compose_markdown(found),
        lambda path: write_run(path, [run_table(runs)]), lambda path: draw_rounds(found["rounds"], path),
    )  # fmt: skip
    return [files[0], str(report / "compose.json"), *files[1:]]


def _skipped(index: ServedIndex, requests: Sequence[KnownRequest], needed: Sequence[str]) -> dict[str, str]:
    """Return the methods that cannot be used here, with why; raise `WrongInput` if one is needed."""
    with index.version() as now:
        skipped = _unusable(now.skills.count(kind=["skill"]), requests)
    if impossible := [name for name in needed if name in skipped]:
        msg = f"--method {impossible[0]}: {skipped[impossible[0]]}"
        raise WrongInput(msg)
    return skipped


def _taken(
    requests: Sequence[KnownRequest], rows: Mapping[str, frozenset[str]], wanted: Sequence[str],
    leave_out: float | None, seed: int, *, whole: bool,
) -> list[TakenRows]:  # fmt: skip
    """Return the rows that are taken away; of a report the two categories most needed and a fifth of all."""
    if whole and not wanted:
        wanted = most_needed(requests, rows, 2)
    share = _SHARE if whole and leave_out is None else leave_out
    found = [without_categories(rows, wanted)] if wanted else []
    return found + ([left_out_share(rows, share, seed)] if share is not None else [])


def _sure(requests: Sequence[KnownRequest], methods: Iterable[str]) -> list[str]:
    known = all(request.needed.known_servers for request in requests)
    return [name for name in _SURE if name in methods] if known else []


def _found(bench: _Bench, llm: Llm | None) -> tuple[dict[str, Any], Mapping[str, MethodRun]]:
    runs, reworded = _measured(bench)
    found: dict[str, Any] = {
        "queries": len(bench.requests), "baseline": bench.baseline, "seed": bench.seed,
        "served": len(bench.rows), "methods": summarise_methods(runs, reworded, bench.baseline),
        "skipped": dict(bench.skipped),
        "without_gold": _without_gold(bench, runs), "transfer": _transfer(bench, runs),
        "llm": llm.report() if llm else None,
    }  # fmt: skip
    if bench.whole:
        found |= {
            "rounds": rounds_of(runs), "feedback": feedback(runs[DEFAULT], runs[VANILLA]),
            "when_right": {name: when_right(run) for name, run in runs.items()},
            "simulation": simulated(runs[DEFAULT], bench.seed),
        }  # fmt: skip
    return found, runs


def _unusable(skills: int, requests: Iterable[KnownRequest]) -> dict[str, str]:
    """Return the methods that cannot be measured here, and why."""
    bare = next((request.query_id for request in requests if request.descriptions is None), None)
    why = f"query {bare!r} has no `description` of its steps"
    found = {} if bare is None else {name: why for name in METHODS if name in NEED_DESCRIPTIONS}
    return found | ({} if skills else {name: NO_BODIES for name in METHODS if name in NEED_BODIES})


def _measured(bench: _Bench) -> tuple[dict[str, MethodRun], dict[str, MethodRun]]:
    others = paraphrased(bench.requests)
    with steps("measured", len(bench.methods) * (len(bench.requests) + len(others))) as step:
        runs = {n: run_method(bench.asking, m, bench.requests, step) for n, m in bench.methods.items()}
        reworded = {n: run_method(bench.asking, m, others, step) for n, m in bench.methods.items() if others}
    return runs, reworded


def _without_gold(bench: _Bench, runs: Mapping[str, MethodRun]) -> dict[str, Any]:
    total = len(bench.sure) * len(bench.requests)
    with steps("measured without what serves a step", total) as step:
        return {
            name: without_gold(bench.asking, bench.methods[name], runs[name], bench.seed, step)
            for name in bench.sure
        }


def _transfer(bench: _Bench, runs: Mapping[str, MethodRun]) -> list[dict[str, Any]]:
    names = USUAL if bench.whole else bench.asked
    total = len(names) * sum(len(needing(bench.requests, rows)) for rows in bench.taken)
    with steps("measured without rows", total) as step:
        return [
            {"method": name, **transfer(bench.asking, bench.methods[name], runs[name], rows, step)}
            for rows in bench.taken
            for name in names
        ]
