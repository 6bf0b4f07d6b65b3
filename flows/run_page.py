"""The page of a run in Prefect: the name it stands under, its lines, tables (artifacts) and progress."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from coolname.data import config
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import MissingContextError, TerminationSignal
from prefect.logging import get_run_logger

from flows.commands.console import counts
from flows.run_record import RunRecord, recorded
from storage.locks import writer_lock
from storage.root import Root
from tasks.models.visible import visible

# Prefect names a run that nobody named by two of these words.
_LISTS: dict[str, Any] = config  # of a package that comes with Prefect
_WORDS = frozenset(word for part in _LISTS.values() for word in part.get("words", ()))
_SECONDS_BETWEEN_LINES = 10.0
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&]")


def named(template: str) -> Callable[[], str]:
    """Return what names a flow's runs: a name given in Prefect's form stays, else the template is filled in.

    Args:
        template: Holds parameters of the flow in braces.
    """

    def name() -> str:
        context = FlowRunContext.get()
        run = None if context is None else context.flow_run
        if context is None or run is None:
            return template
        return template.format(**context.parameters or {}) if is_generated(run.name) else run.name

    return name


def is_generated(name: str) -> bool:
    """Tell whether a run's name is one of Prefect's own, such as `amber-badger`."""
    words = name.split("-")
    return len(words) == 2 and _WORDS.issuperset(words)


def on_page() -> bool:
    """Tell whether a flow of Prefect runs here; without a server flows are functions, and have no page."""
    return FlowRunContext.get() is not None


def tell(line: str, **fields: str) -> None:
    """Put a line on the page of the run, and into its log; a line end in it cannot forge another.

    `fields` are what it is about, such as its `source`, for a log in JSON.
    """
    try:
        logger: Any = get_run_logger()
    except MissingContextError:  # without Prefect's decorators a flow is a function like any other
        logger = logging.getLogger(__name__)
    logger.info("%s", visible(line), extra=fields)


def writing(root: Root, wait_minutes: float, run: str) -> AbstractContextManager[None]:
    """Hold the root's writer lock as `writer_lock` does, and tell on the run's page who is waited for."""
    return writer_lock(root, 60 * wait_minutes, run=run, say=tell)


@contextmanager
def recorded_writing(root: Root, wait_minutes: float, run: str, flow: str) -> Iterator[RunRecord]:
    """Hold the root's writer lock as `writing` does, and write the record of a run that reads no source."""
    with (
        writing(root, wait_minutes, run),
        terminable(recorded(root, run, [], flow=flow, mends=False)) as record,
    ):
        yield record


@contextmanager
def recorded_on_page(root: Root, run_id: str, specs: list[str], *, flow: str) -> Iterator[RunRecord]:
    """Write a run's record as `recorded` does, and tell it on the run's page, also if the run fails."""
    record = None
    try:
        with terminable(recorded(root, run_id, specs, flow=flow)) as record:
            yield record
    finally:
        if record is not None:
            _tell_record(record.as_dict())


@contextmanager
def terminable(recording: AbstractContextManager[RunRecord]) -> Iterator[RunRecord]:
    """Write a run's record; of one that is ended by SIGTERM it says whether a person cancelled it."""
    with recording as record:
        try:
            yield record
        except TerminationSignal:
            record.state, record.message = _why_terminated()
            raise


def _why_terminated() -> tuple[str, str]:
    """Return the state and the message of a run that is ended by SIGTERM, as Prefect's server knows."""
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is not None:
        with suppress(Exception), get_client(sync_client=True) as client:
            state = client.read_flow_run(run.id).state
            if state is not None and (state.is_cancelling() or state.is_cancelled()):
                return "cancelled", "cancelled: a later run picks up where this one was"
    return "interrupted", "ended by SIGTERM: a later run picks up where this one was"


def _tell_record(record: Mapping[str, Any]) -> None:
    """Tell what a run read, dropped, made, checked and published, from its record."""
    for source in record["sources"]:
        tell_source(source)
    if record["documents"] is not None:  # else a bucket did not say what it holds
        tell(f"documents {record['documents']}, dropped: {counts(record['dropped'])}")
        tell(f"nodes {record['nodes']}, edges {record['edges']}, vectors made {record['vectors_new']}")
    passed = sum(check["passed"] for check in record["checks"])
    tell(f"checks passed: {passed} of {len(record['checks'])}")
    for check in record["checks"]:
        if not check["passed"]:
            tell(f"check {check['check']} failed: {check['value']}, limit {check['limit']}")
    if record["documents"] is not None:
        what = "published" if record["published"] else "nothing was published; still served"
        tell(f"{what}: {record['served'] or 'nothing'}")
    message = f": {record['message']}" if record["message"] else ""
    tell(f"run {record['run_id']} is {record['state']}{message}; seconds: {counts(record['seconds'])}")


def tell_source(report: Mapping[str, Any]) -> None:
    """Tell what the reading of one source brought."""
    read = {k: report[k] for k in ("listed", "new", "changed", "unchanged", "retired")}
    failed = f"; failed: {counts(report['failed'])}" if report["failed"] else ""
    message = f"; {report['message']}" if report["message"] else ""
    tell(
        f"source {report['source']}: {report['state']}; {counts(read)}{failed}{message}",
        source=report["source"],
    )


def show_table(
    key: str, rows: Sequence[Mapping[str, Any]] | Callable[[], Sequence[Mapping[str, Any]]], description: str
) -> None:
    """Create a table artifact, its texts visible; an empty table says that it is empty.

    `rows` may be a function that makes them: it is not called where there is no page.
    """
    if not on_page():
        return
    table = [_visible(dict(row)) for row in (rows() if callable(rows) else rows)] or [
        {"note": "nothing to show"}
    ]
    create_table_artifact(key=key, table=table, description=visible(description))


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of the same keys as a table of Markdown, in which no text is markup."""
    names = list(rows[0]) if rows else []
    cells = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells if names)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    text = "" if value is None else str(value)
    return _MARKUP.sub(r"\\\g<0>", visible(text))


def _visible(value: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_visible(key): _visible(held) for key, held in value.items()}
    return [_visible(held) for held in value] if isinstance(value, list | tuple) else value


@contextmanager
def batch_progress(stage: str, total: int) -> Iterator[Callable[[], None]]:
    """Show how many of `total` batches are done, and yield a function to call after each batch.

    The artifact's key is `skillery-<stage>-progress`; a line is told when ten seconds have passed since the
    last one. A single batch shows nothing.
    """
    if total < 2:
        yield lambda: None
        return
    said = {"key": f"skillery-{stage}-progress", "description": f"Batches of {stage}: {total} in all."}
    shown: Any = on_page() and create_progress_artifact(progress=0.0, **said)
    done, begun = 0, time.monotonic()
    told = begun

    def step() -> None:
        nonlocal done, told
        done, now = done + 1, time.monotonic()
        if shown:
            update_progress_artifact(artifact_id=shown, progress=100.0 * done / total)
        if now - told >= _SECONDS_BETWEEN_LINES and done < total:
            told = now
            tell(f"{stage}: {pace(done, total, now - begun)}")

    yield step


def pace(done: int, total: int, seconds: float) -> str:
    """Return how many batches are done after some seconds, above 0, how many a minute, and the time left."""
    minutes = seconds / done * (total - done) / 60
    left = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    if minutes < 1.5:
        left = f"{60 * minutes:.0f} s"
    return f"{done} of {total} batches, {60 * done / seconds:.3g} a minute, about {left} left"


def counted(counts: Mapping[str, Any], name: str = "what", value: str = "count") -> list[dict[str, Any]]:
    """Return counts as rows of a table of two columns."""
    return [{name: key, value: count} for key, count in counts.items()]


def flat(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts without nesting: counts by reason get keys such as `fallbacks: budget`."""
    found: dict[str, Any] = {}
    for key, value in counts.items():
        nested = isinstance(value, dict)
        found |= {f"{key}: {name}": n for name, n in value.items()} if nested else {key: value}
    return found
