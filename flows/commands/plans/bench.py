"""The bench of plans for the command: methods measured on requests whose steps are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, steps, write_report
from flows.commands.llm import is_set_up, opened_llm
from flows.commands.plans.llm import INSTEAD
from flows.commands.queries import open_index
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.compose.bench import (
    MethodRun,
    draw_rounds,
    feedback,
    rounds_of,
    run_method,
    run_table,
    simulated,
    summarise_methods,
    when_right,
)
from tasks.evaluate.compose.hidden_rows import (
    TakenRows,
    needing,
    require_servers,
    rows_by_id,
    taken_rows,
    transfer,
    without_gold,
)
from tasks.evaluate.compose.llm_methods import llm_methods
from tasks.evaluate.compose.methods import (
    DEFAULT,
    METHODS,
    NEED_ENDPOINT,
    VANILLA,
    Asking,
    PlanMethod,
    require_methods,
    unusable,
)
from tasks.evaluate.compose.report import compose_markdown
from tasks.evaluate.compose.requests import KnownRequest, read_categories, read_requests
from tasks.evaluate.measures.runs import write_run

USUAL = (DEFAULT, VANILLA)
_SURE = (DEFAULT, "gold-steps", "gold-dense")  # whose confidence a report measures


def plans_bench(
    root: Root,
    settings: Settings,
    queries: Path,
    *,
    methods: Sequence[str] = (),
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
    whole = report is not None
    asks = (whole or not {*methods, baseline}.isdisjoint(NEED_ENDPOINT)) and is_set_up(settings)
    instead = f"{INSTEAD}, llm-direct and react have no plan"
    with opened_llm(answers or root, settings, instead) if asks else nullcontext() as llm:
        known = {**METHODS, **(llm_methods(llm, settings.compose_certainty) if llm else {})}
        names = [*(methods or (known if whole else USUAL)), baseline]
        require_methods(names, known)
        counted = read_categories(categories)
        requests = read_requests(queries, counted)
        if hide_gold:
            require_servers(requests, "--without-gold")
        asking = Asking(open_index(root, settings), counted)
        rows, skipped = rows_by_id(asking.index, counted), unusable(asking.index, requests)
        if impossible := [name for name in (*methods, baseline) if name in skipped]:
            msg = f"--method {impossible[0]}: {skipped[impossible[0]]}"
            raise WrongInput(msg)
        if report is not None:
            folder_at(report, "--report")
            names = [*USUAL, *names]
        taken = taken_rows(requests, rows, without_category, leave_out, seed, whole=whole)
        chosen = {name: known[name] for name in dict.fromkeys(names) if name not in skipped}
        asked = [name for name in chosen if name in (methods or USUAL)]
        runs, reworded = _measured(asking, chosen, requests)
        sure = (
            _SURE if whole and all(r.needed.known_servers for r in requests) else asked if hide_gold else ()
        )
        found: dict[str, Any] = {
            "queries": len(requests), "baseline": baseline, "seed": seed, "served": len(rows),
            "methods": summarise_methods(runs, reworded, baseline), "skipped": skipped if whole else {},
            "without_gold": _without_gold(asking, {n: chosen[n] for n in sure if n in chosen}, runs, seed),
            "transfer": _transfer(
                asking, {name: chosen[name] for name in (USUAL if whole else asked)}, runs, taken
            ),
            "llm": llm.report() if llm else None,
        }  # fmt: skip
    return found if report is None else _reported(report, found, runs)


def _measured(
    asking: Asking, methods: Mapping[str, PlanMethod], requests: Sequence[KnownRequest]
) -> tuple[dict[str, MethodRun], dict[str, MethodRun]]:
    """Return the runs on requests, and if there are any, on their paraphrases."""
    others = [request.reworded() for request in requests if request.paraphrase]
    with steps("measured", len(methods) * (len(requests) + len(others))) as step:
        runs = {name: run_method(asking, method, requests, step) for name, method in methods.items()}
        return runs, {n: run_method(asking, m, others, step) for n, m in methods.items() if others}


def _without_gold(
    asking: Asking, methods: Mapping[str, PlanMethod], runs: Mapping[str, MethodRun], seed: int
) -> dict[str, Any]:
    total = sum(len(runs[name].requests) for name in methods)
    with steps("measured without what serves a step", total) as step:
        return {name: without_gold(asking, m, runs[name], seed, step) for name, m in methods.items()}


def _transfer(
    asking: Asking,
    methods: Mapping[str, PlanMethod],
    runs: Mapping[str, MethodRun],
    taken: Sequence[TakenRows],
) -> list[dict[str, Any]]:
    total = sum(len(needing(runs[name].requests, rows)) for name in methods for rows in taken)
    with steps("measured without rows", total) as step:
        return [
            {"method": name, **transfer(asking, method, runs[name], rows, step)}
            for rows in taken
            for name, method in methods.items()
        ]


def _reported(report: Path, found: dict[str, Any], runs: Mapping[str, MethodRun]) -> dict[str, Any]:
    """Write the report of a bench; return what was found with its files."""
    found |= {
        "rounds": rounds_of(runs), "feedback": feedback(runs[DEFAULT], runs[VANILLA]),
        "when_right": {name: when_right(run) for name, run in runs.items()},
        "simulation": simulated(runs[DEFAULT], found["seed"]),
    }  # fmt: skip
    (report / "compose.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")
    files = write_report(
        report, "compose", compose_markdown(found),
        lambda path: write_run(path, [run_table(runs)]), lambda path: draw_rounds(found["rounds"], path),
    )  # fmt: skip
    return {**found, "report": [files[0], str(report / "compose.json"), *files[1:]]}
