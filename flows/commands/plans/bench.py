"""The bench of plans for the command: methods measured on requests whose steps are known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, say_aside, steps, write_report
from flows.commands.llm import opened_llm
from flows.commands.plans.llm import INSTEAD
from flows.commands.queries import open_index
from flows.settings import Settings, is_set_up
from storage.errors import WrongInput
from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import open_source
from tasks.evaluate.compose.bench import (
    ROUNDS,
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
    pool_of,
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
    PAPERS,
    PAPERS_VANILLA,
    VANILLA,
    Asking,
    PlanMethod,
    require_methods,
    unusable,
)
from tasks.evaluate.compose.report import compose_markdown
from tasks.evaluate.compose.requests import KnownRequest, read_categories, read_requests
from tasks.models.encoder import OnnxEncoder
from tasks.models.llm.ask import Llm
from tasks.models.onnx_export import exported_encoder
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import LicencePolicy
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.retrieve.index.build import build
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.versions.publish import publish

USUAL = (DEFAULT, VANILLA)
_SURE = (DEFAULT, "gold-steps", "gold-dense")  # whose confidence a report measures


def plans_bench(
    root: Root, settings: Settings, queries: Path, *, methods: Sequence[str] = (),
    baseline: str = "commas", categories: Path | None = None, report: Path | None = None,
    without_category: Sequence[str] = (), leave_out: float | None = None, seed: int = 42,
    hide_gold: bool = False, answers: Root | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Measure methods that plan on requests whose steps are known, with what a root serves.

    The keywords are the options of `skillery evaluate compose`, whose help says what each is; `hide_gold` is
    `--without-gold`. `report` is a folder for `compose.md`, `compose.json`, `compose.parquet` (the run) and,
    where matplotlib is, `compose.png`. Answers of the language model are kept below `answers`, else `root`.

    Returns `queries`, `baseline`, `seed`, `served` (rows), `methods` (rows of `summarise_methods`), `skipped`
    (why a report left a method out); `without_gold` (by method) and `transfer` (rows with `method`), empty
    where not wanted; `pool` (of `pool_of`); `llm`, the account of the language model, None if none was asked.
    With a report also `rounds`, `feedback`, `feedback_llm`, `when_right` (by method), `simulation`, and
    `report`, the files written. Before anything is measured, raises `WrongInput` if a file, a method, a
    category, a share or the folder cannot be used, and `NotPublished` if nothing is served; then `LlmDenied`
    if the server of the language model denies access.
    """
    whole = report is not None
    needed = whole or not {*methods, baseline}.isdisjoint(NEED_ENDPOINT)
    with _asked_llm(answers or root, settings) if needed else nullcontext() as llm:
        known = {**METHODS, **(llm_methods(llm, settings.compose_certainty) if llm else {})}
        require_methods(names := [*(methods or (known if whole else USUAL)), baseline], known)
        requests = read_requests(queries, counted := read_categories(categories))
        if hide_gold:
            require_servers(requests, "--without-gold")
        asking = Asking(open_index(root, settings), counted)
        rows, skipped = rows_by_id(asking.index, counted), unusable(asking.index, requests)
        _require_usable((*methods, baseline), skipped)
        if report is not None:
            folder_at(report, "--report")
        taken = taken_rows(requests, rows, without_category, leave_out, seed, whole=whole)
        wanted = dict.fromkeys([*(USUAL if whole else ()), *names])
        chosen = {name: known[name] for name in wanted if name not in skipped}
        asked = [name for name in chosen if name in (methods or USUAL)]
        runs, reworded = _measured(asking, chosen, requests)
        held_out = (*USUAL, PAPERS_VANILLA, PAPERS) if whole else asked
        sure = _sure_of(requests, [*chosen], asked if hide_gold else [], whole=whole)
        found: dict[str, Any] = {
            "queries": len(requests), "baseline": baseline, "seed": seed, "served": len(rows),
            "methods": summarise_methods(runs, reworded, baseline), "skipped": skipped if whole else {},
            "without_gold": _without_gold(asking, {name: chosen[name] for name in sure}, runs, seed),
            "transfer": _transfer(asking, {n: chosen[n] for n in held_out if n in chosen}, runs, taken),
            "pool": pool_of(asking.index, counted), "llm": llm.report() if llm else None,
        }  # fmt: skip
    return found if report is None else _reported(report, found, runs)


def _asked_llm(answers: Root, settings: Settings) -> AbstractContextManager[Llm | None]:
    """Return what opens the language model, nothing where none is set up."""
    if not is_set_up(settings):
        return nullcontext()
    return opened_llm(answers, settings, f"{INSTEAD}, llm-direct and react have no plan")


def _sure_of(
    requests: Sequence[KnownRequest], chosen: Sequence[str], hidden: list[str], *, whole: bool
) -> list[str]:
    """Return the methods that are asked with gold rows hidden: a report's own where servers are known."""
    if not whole or not all(request.needed.known_servers for request in requests):
        return hidden
    return [name for name in _SURE if name in chosen]


def _require_usable(names: Sequence[str], skipped: Mapping[str, str]) -> None:
    if impossible := [name for name in names if name in skipped]:
        raise WrongInput(f"--method {impossible[0]}: {skipped[impossible[0]]}")


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
    found |= {
        "rounds": [row for names in ROUNDS for row in rounds_of(runs, names)],
        "feedback": feedback(runs[DEFAULT], runs[VANILLA]),
        "feedback_llm": feedback(runs[PAPERS], runs[PAPERS_VANILLA]) if PAPERS in runs else None,
        "when_right": {name: when_right(run) for name, run in runs.items()},
        "simulation": simulated(runs[DEFAULT], found["seed"]),
    }  # fmt: skip
    draw = partial(draw_rounds, rounds_of(runs))
    files = write_report(report, "compose", compose_markdown(found), [run_table(runs)], draw, found)
    return {**found, "report": files}


_SPECS = {".md": "awesome", ".parquet": "parquet"}


def served_corpus(corpus: str | None, root: Root, settings: Settings) -> AbstractContextManager[Root]:
    """Return the context of the root that serves a corpus: another root, a file, or `root` itself."""
    if not corpus or not Path(corpus).is_file():
        return nullcontext(Root(corpus) if corpus else root)
    return served_file(Path(corpus), root, settings)


@contextmanager
def served_file(file: Path, root: Root, settings: Settings) -> Iterator[Root]:
    """Yield a root that serves the rows of a file, without nodes; it is removed at the end.

    The file is a list of servers (`.md`, as the source `awesome:` reads it), or skills (`.parquet`); `root`
    keeps the encoder. Raises `WrongInput` if the file is none of these, or holds nothing that could be
    served.
    """
    if file.suffix not in _SPECS:
        msg = f"--corpus {file}: give a root, a list of servers (.md) or a corpus of skills (.parquet)"
        raise WrongInput(msg)
    models = exported_encoder(root.folder / "models", settings.encoder)
    with tempfile.TemporaryDirectory(prefix="skillery-measured-") as folder:
        own = Root(folder)
        (own.folder / "models").mkdir()
        (own.folder / "models" / models.name).symlink_to(models.absolute())
        say_aside(f"{file} is indexed for these measures")
        _publish(f"{_SPECS[file.suffix]}:{file.absolute()}", own, f"models/{models.name}", settings)
        yield own


def _publish(spec: str, root: Root, model: str, settings: Settings) -> None:
    now, limits = datetime.now(UTC), FilterLimits()
    run = f"{now:%Y%m%dT%H%M%S}"
    report = collect(open_source(spec, CrawlContext(root, now)), root, run_id=run, now=now)
    for parts in plan_refine(root, limits).batches:
        refine_batch(root, parts, run_id=run, limits=limits)
    update_corpus(root, run_id=run, now=now)
    encoder = OnnxEncoder(root.folder / model)
    built = build(root, encoder=encoder, with_nodes=False)
    if not built.skills_rows:
        raise WrongInput(f"--corpus: {spec} holds nothing that can be served ({report.state})")
    classify_licences(root, built.skills, LicencePolicy(**settings.licence_policies()["serve"]))
    publish(root, built, card=encoder.card, path=model, run_id=run, now=now)
