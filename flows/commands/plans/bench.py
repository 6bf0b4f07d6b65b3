"""The bench of plans for the command: methods measured on requests whose steps are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from flows.commands.console import drawn, folder_at, progress
from flows.commands.plans.llm import measured_llm
from flows.commands.queries import open_index
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.compose.bench import MethodRun, paraphrased, run_method, summarise_methods
from tasks.evaluate.compose.feedback import draw_rounds, feedback, rounds_of, when_right
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
from tasks.evaluate.compose.report.report import compose_markdown
from tasks.evaluate.compose.requests import KnownRequest, read_categories, read_requests
from tasks.evaluate.compose.row_vectors import NO_BODIES, RowVectors
from tasks.evaluate.compose.simulation import simulated
from tasks.evaluate.compose.transfer import (
    TakenRows,
    left_out_share,
    most_needed,
    needing,
    rows_by_id,
    transfer,
    without_categories,
)
from tasks.evaluate.compose.without_gold import require_servers, without_gold
from tasks.models.llm.fallbacks import FallbackLlm

USUAL = (DEFAULT, VANILLA)
_SHARE = 0.2  # of rows that a report leaves out, as SkillWeaver's section 7.9
_SURE = (DEFAULT, "gold-steps", "gold-dense")  # whose confidence a report measures


@dataclass(frozen=True, slots=True)
class PlanWishes:
    """What to measure of plans."""

    queries: Path  # JSON lines {query_id, query, steps, edges}
    methods: Sequence[str] | None = None  # names; None: `USUAL`, and in a report all, which always has these
    baseline: str = "commas"
    categories: Path | None = None  # JSON {category of the index: category that counts}
    # A folder for `compose.json`, `compose.md` and, if matplotlib is installed, `compose.png`.
    report: Path | None = None
    without_categories: Sequence[str] = ()  # taken out of what can be found, to measure transfer
    leave_out: float | None = None  # the share of rows taken out, above 0 and below 1
    seed: int = 42  # draws these rows, the steps of `without_gold`, and a report's simulation
    without_gold: bool = False  # of each request one step loses what serves it


@dataclass(frozen=True, slots=True)
class _Bench:
    """Wishes that were checked, with the requests read and the index open."""

    wishes: PlanWishes
    asking: Asking
    requests: Sequence[KnownRequest]
    methods: Mapping[str, PlanMethod]
    skipped: Mapping[str, str]
    rows: Mapping[str, frozenset[str]]

    @property
    def taken(self) -> list[TakenRows]:
        """The rows that are taken away; a report takes the two categories most needed and a fifth of all."""
        wishes, whole = self.wishes, self.wishes.report is not None
        wanted = list(wishes.without_categories)
        if whole and not wanted:
            wanted = most_needed(self.requests, self.rows, 2)
        share = _SHARE if whole and wishes.leave_out is None else wishes.leave_out
        found = [without_categories(self.rows, wanted)] if wanted else []
        return found + ([left_out_share(self.rows, share, wishes.seed)] if share is not None else [])

    @property
    def sure(self) -> list[str]:
        """The methods whose confidence is measured."""
        if self.wishes.report is not None:
            known = all(request.needed.known_servers for request in self.requests)
            return [name for name in _SURE if name in self.methods] if known else []
        return self.asked if self.wishes.without_gold else []

    @property
    def asked(self) -> list[str]:
        """The methods that are wanted for themselves, not as the baseline alone."""
        return [name for name in self.methods if name in (self.wishes.methods or USUAL)]


def plans_bench(
    root: Root,
    settings: Settings,
    wishes: PlanWishes,
    known: Mapping[str, PlanMethod] = METHODS,
    *,
    answers: Root | None = None,
) -> dict[str, Any]:
    """Measure methods that plan on requests whose steps are known, with what a root serves.

    Args:
        root: What it serves is found.
        settings: The encoder's name and threads, and the language model.
        wishes: What to measure.
        known: The methods there are without a language model, by name.
        answers: Answers of the language model are kept below it; None: below `root`.

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
    named = {*(wishes.methods or ()), wishes.baseline}
    wanted = wishes.report is not None or not named.isdisjoint(NEED_ENDPOINT)
    with measured_llm(answers or root, settings, wanted=wanted) as llm:
        more = llm_methods(llm, settings.compose_certainty) if llm else {}
        found = _found(_checked(root, settings, wishes, {**known, **more}), llm)
    return found if wishes.report is None else {**found, "report": _written(found, wishes.report)}


def _found(bench: _Bench, llm: FallbackLlm | None) -> dict[str, Any]:
    wishes = bench.wishes
    taken = bench.taken
    runs, reworded = _measured(bench)
    found: dict[str, Any] = {
        "queries": len(bench.requests), "baseline": wishes.baseline, "seed": wishes.seed,
        "served": len(bench.rows), "methods": summarise_methods(runs, reworded, wishes.baseline),
        "skipped": dict(bench.skipped),
        "without_gold": _without_gold(bench, runs), "transfer": _transfer(bench, runs, taken),
        "llm": llm.report() if llm else None,
    }  # fmt: skip
    if wishes.report is None:
        return found
    return found | {
        "rounds": rounds_of(runs), "feedback": feedback(runs[DEFAULT], runs[VANILLA]),
        "when_right": {name: when_right(run) for name, run in runs.items()},
        "simulation": simulated(runs[DEFAULT], wishes.seed),
    }  # fmt: skip


def _checked(root: Root, settings: Settings, wishes: PlanWishes, known: Mapping[str, PlanMethod]) -> _Bench:
    wanted = [*(wishes.methods or (known if wishes.report else USUAL)), wishes.baseline]
    require_methods(wanted, known)
    categories = read_categories(wishes.categories)
    requests = read_requests(wishes.queries, categories)
    if wishes.without_gold:
        require_servers(requests, "--without-gold")
    index = open_index(root, settings)
    rows = rows_by_id(index, categories)
    with index.version() as now:
        skipped = _unusable(now.skills.count(kind=["skill"]), requests)
    if wishes.report is not None:
        folder_at(wishes.report, "--report")
        wanted = [*USUAL, *wanted]
    if impossible := [name for name in [*(wishes.methods or ()), wishes.baseline] if name in skipped]:
        msg = f"--method {impossible[0]}: {skipped[impossible[0]]}"
        raise WrongInput(msg)
    methods = {name: known[name] for name in dict.fromkeys(wanted) if name not in skipped}
    asking = Asking(index, RowVectors(index), categories)
    bench = _Bench(wishes, asking, requests, methods, skipped if wishes.report else {}, rows)
    _ = bench.taken  # what cannot be taken away is said before anything is measured
    return bench


def _unusable(skills: int, requests: Iterable[KnownRequest]) -> dict[str, str]:
    """Return the methods that cannot be measured here, and why."""
    bare = next((request.query_id for request in requests if request.descriptions is None), None)
    why = f"query {bare!r} has no `description` of its steps"
    found = {} if bare is None else {name: why for name in METHODS if name in NEED_DESCRIPTIONS}
    return found | ({} if skills else {name: NO_BODIES for name in METHODS if name in NEED_BODIES})


def _measured(bench: _Bench) -> tuple[dict[str, MethodRun], dict[str, MethodRun]]:
    others = paraphrased(bench.requests)
    total = len(bench.methods) * (len(bench.requests) + len(others))
    with progress("measured") as report:
        step = _steps(report, total)
        runs = {n: run_method(bench.asking, m, bench.requests, step) for n, m in bench.methods.items()}
        reworded = {n: run_method(bench.asking, m, others, step) for n, m in bench.methods.items() if others}
    return runs, reworded


def _without_gold(bench: _Bench, runs: Mapping[str, MethodRun]) -> dict[str, Any]:
    with progress("measured without what serves a step") as report:
        step = _steps(report, len(bench.sure) * len(bench.requests))
        return {
            name: without_gold(bench.asking, bench.methods[name], runs[name], bench.wishes.seed, step)
            for name in bench.sure
        }


def _transfer(
    bench: _Bench, runs: Mapping[str, MethodRun], taken: Sequence[TakenRows]
) -> list[dict[str, Any]]:
    names = USUAL if bench.wishes.report is not None else bench.asked
    with progress("measured without rows") as report:
        step = _steps(report, len(names) * sum(len(needing(bench.requests, rows)) for rows in taken))
        return [
            {"method": name, **transfer(bench.asking, bench.methods[name], runs[name], rows, step)}
            for rows in taken
            for name in names
        ]


def _steps(report: Callable[[int, int], None], total: int) -> Callable[[], None]:
    done = count(1)
    return lambda: report(next(done), total)


def _written(found: Mapping[str, Any], folder: Path) -> list[str]:
    (folder / "compose.md").write_text(compose_markdown(found), "utf-8")
    (folder / "compose.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")
    pictures = drawn(lambda path: draw_rounds(found["rounds"], path), folder / "compose.png")
    return [str(file) for file in (folder / "compose.md", folder / "compose.json", *pictures)]
