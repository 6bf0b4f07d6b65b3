"""Runs of flows in this process, for the command."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from importlib import import_module
from typing import Any

from flows.commands.foresee import foresee, foresee_days
from flows.commands.open_formats.json_log import JsonLines
from flows.run_record import new_run_id, run_as
from flows.server.temporary import prepare_home, server_for
from flows.settings import Index, Stage, load_settings
from storage.errors import EvaluationFell, WrongInput
from storage.lance.served import require_served
from storage.root import Root
from storage.state import accept_risks
from tasks.crawl.backfill import days_crawled, raw_since, require_whole
from tasks.crawl.refresh import target_of
from tasks.crawl.source_list import specs_to_read
from tasks.crawl.sources import normal_spec
from tasks.models.onnx_export import export_ahead, require_encoder
from tasks.retrieve.install.contents import require_rules
from tasks.retrieve.revisions.edition import find_row


@contextmanager
def prefect_for(root: Root, module: str | None = None, *, encodes: bool = False) -> Iterator[None]:
    """Have Prefect in the body, with the user's own server, or one for a cluster's workers, or without any.

    Its home lies below the root. Settings that the user has made stay. While a server starts, the flow's
    `module` and the database are imported, and of a flow that `encodes` the encoder is exported. Before
    anything is started, raises `WrongInput` if there is no such encoder.
    """
    settings = load_settings()
    encoder = settings.encoder if encodes else None
    if encoder is not None:
        require_encoder(root.fetch("models"), encoder)
    prepare_home(root)
    elsewhere = settings.task_runner != "threads"
    with server_for(root, partial(_load_ahead, root, module, encoder), needed=elsewhere):
        _limit_terminal(stacks=settings.debug, progress=not settings.quiet)
        yield


def _load_ahead(root: Root, module: str | None, encoder: str | None) -> None:
    if module is not None:
        import_module(module)
        import_module("lancedb")
    if encoder is not None and root.uri == str(root.folder):  # a bucket may hold its export
        export_ahead(root.folder / "models", encoder)


def _limit_terminal(*, stacks: bool, progress: bool) -> None:
    """Keep off the terminal what is not wanted of what Prefect says; the page of the run has all of it.

    Args:
        stacks: Whether a failure is shown as Prefect does, once for each flow and task around it; the command
            ends with one line that names it in any case.
        progress: Whether lines that are no warnings are shown.
    """
    import prefect.main  # noqa: PLC0415, F401 (sets up logging, once a process)
    from prefect.logging.handlers import PrefectConsoleHandler  # noqa: PLC0415

    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler | JsonLines):
            if not stacks:
                handler.addFilter(
                    lambda record: not (record.exc_info or "in state Failed" in record.getMessage())
                )
            handler.setLevel(logging.NOTSET if progress else logging.WARNING)


def run_nightly(
    root: Root, sources: list[str] | None, limit: int | None, index: Index, wait: float = 0
) -> dict[str, Any]:
    """Run the nightly flow and return its record, also if a stage failed or the gate refused.

    Before anything is started, raises `WrongInput` if a source's spec has none of the known forms; then
    `SkilleryError` if the run failed before it had a record, e.g. because another run holds the root.
    """
    specs = [normal_spec(spec) for spec in sources or []]
    with prefect_for(root, "flows.nightly", encodes=True):
        from flows.nightly import nightly  # noqa: PLC0415 (Prefect reads its settings when imported)

        return _recorded(lambda: nightly(root.uri, specs or None, limit, index, wait))


def foresee_run(root: Root, sources: list[str] | None, limit: int | None, index: Index) -> dict[str, Any]:
    """Return what `run_nightly` would read, make and take; write nothing. Raises `WrongInput` as it does."""
    specs = [normal_spec(spec) for spec in sources or []] or specs_to_read(root)
    return foresee(root, load_settings(), specs, index=index, limit=limit)


def run_backfill(
    root: Root, start: str, end: str, *, publish: bool = False, stages: list[Stage] | None = None,
    wait: float = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Run the backfill flow and return one row for each rebuilt day.

    Raises `WrongInput` if an argument is no date, the end lies before the start, or nothing was crawled in
    between; `Locked` if another run writes to the root; `GateRefused` if the last day's corpus was to be
    published and failed a check.
    """
    _require_days(root, start, end)
    days = date.fromisoformat(start), date.fromisoformat(end)
    with prefect_for(root, "flows.backfill", encodes=True):
        from flows.backfill import backfill  # noqa: PLC0415

        return backfill(*days, root.uri, publish, stages, wait)


def foresee_backfill(
    root: Root, start: str, end: str, *, publish: bool = False, stages: Sequence[Stage] = ()
) -> list[dict[str, Any]]:
    """Return one row for each day that this backfill would rebuild; write nothing. Raises as it does."""
    if publish:
        require_whole(stages)
    rows = foresee_days(root, _require_days(root, start, end))
    return [{**row, "would be served": publish and row is rows[-1]} for row in rows]


def _require_days(root: Root, start: str, end: str) -> list[str]:
    days = days_crawled(root, start, end)
    if not days:
        every = days_crawled(root, "0001-01-01", "9999-12-31")
        held = f"{every[0]} to {every[-1]}" if every else "no day at all"
        if since := raw_since(root):
            held += f"; of days before {since} old ones were removed (SKILLERY_KEEP_RAW_DAYS)"
        raise WrongInput(f"nothing was crawled from {start} to {end}; raw snapshots hold {held}")
    return days


def run_evaluation(root: Root) -> dict[str, Any]:
    """Run the evaluation flow on what is served and return its figures; `fallen` lists what is too low.

    Raises `NotPublished` if nothing is served.
    """
    require_served(root)
    with prefect_for(root, "flows.evaluate"):
        from flows.evaluate import evaluate  # noqa: PLC0415

        try:
            return evaluate(root.uri)
        except EvaluationFell as error:
            return error.found


def run_refresh(
    root: Root, target: str, index: Index, wait: float = 0, accepted: Sequence[str] = ()
) -> dict[str, Any]:
    """Read one document or repository again and return the run's record, also if the run failed.

    Risks of the `accepted` rules in what was fetched of the one document until now are accepted. Before
    anything is started, raises `WrongInput` if no source has such a document, or a rule is none; then
    `Locked` if another run writes to the root.
    """
    wanted, rules = target_of(root, target).name, require_rules(accepted)
    if rules:
        accept_risks(root, find_row(root, wanted)[0]["doc_id"], rules, datetime.now(UTC))
    with prefect_for(root, "flows.refresh_one", encodes=True):
        from flows.refresh_one import refresh_one  # noqa: PLC0415

        return _recorded(lambda: refresh_one(wanted, root.uri, index, wait))


def run_rebuild(root: Root, index: Index, wait: float = 0, *, keep_vectors: bool) -> dict[str, Any]:
    """Make everything again from raw snapshots and return the run's record, also if the run failed.

    Raises `Locked` if another run writes to the root.
    """
    with prefect_for(root, "flows.full_rebuild", encodes=True):
        from flows.full_rebuild import full_rebuild  # noqa: PLC0415

        return _recorded(lambda: full_rebuild(root.uri, index, keep_vectors, wait))


def run_compaction(root: Root, wait: float = 0) -> dict[str, Any]:
    """Compact the tables, remove old files, and return the counts.

    Raises `NotPublished` if nothing is served; `GateRefused` if a compacted table differs from the served
    one, which stays; `Locked` if another run writes to the root.
    """
    require_served(root)
    with prefect_for(root, "flows.compact"):
        from flows.compact import compact  # noqa: PLC0415

        return compact(root.uri, wait)


def _recorded(start: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Start a run under a new id and return its record, also if the run fails."""
    with run_as(new_run_id()) as begun:
        try:
            return start()
        except Exception:
            # Prefect has already shown the error, and the run's record holds it.
            if begun.record is None:
                raise
            return begun.record.as_dict()
