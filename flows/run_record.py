"""The record of a run, which `run --json` prints and `status` lists; it is written whatever happens.

While a run is under way, its record lies in `state/running`, with a heartbeat.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from flows.commands.open_formats.json_log import DOING, run_of_process
from flows.commands.open_formats.lineage import Lineage, flow_run_id
from flows.settings import load_settings
from storage.errors import (
    GateRefused,
    NothingReadable,
    NotPublished,
    SkilleryError,
    StorageError,
    UnknownDocument,
    Unreachable,
    WrongInput,
)
from storage.lance.served import read_served
from storage.root import Root
from storage.state import (
    GOOD,
    corpus_counts,
    end_heartbeat,
    note_good,
    settle_died,
    write_heartbeat,
    write_run,
)
from tasks.crawl.source.identity import shown_spec
from tasks.retrieve.versions.doctor import mend_missing

log = logging.getLogger(__name__)
_HEARTBEAT_SECONDS = 20.0
_NOT_WRITTEN = ("models", "prefect", "usage")  # made once, by Prefect's server, and by those who serve
_LAST_BEAT = 5.0  # seconds: a heartbeat that a bucket holds up is not waited for any longer


@dataclass(slots=True)
class Begun:
    """A run that this process begins: its id, and its record once there is one."""

    run_id: str
    record: RunRecord | None = None


_begun: ContextVar[Begun | None] = ContextVar("begun", default=None)


def new_run_id() -> str:
    """Return an id that sorts by time: UTC to the second, its microseconds in hexadecimal, a random digit."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%S}-{now.microsecond:05x}{secrets.token_hex(1)[0]}"


def this_run() -> str:
    """Return the id of the run that begins: the one of `run_as` or of this process, or a new one."""
    begun = _begun.get()
    return begun.run_id if begun else run_of_process() or new_run_id()


@contextmanager
def run_as(run_id: str) -> Iterator[Begun]:
    """Give the run that begins inside an id, and yield where its record is found, whatever comes of it."""
    token, DOING.run = _begun.set(found := Begun(run_id)), run_id
    try:
        yield found
    finally:
        _begun.reset(token)


@dataclass(slots=True)
class RunRecord:
    """What is known of a run so far, with the keys that `run --json` prints.

    `flow` names the flow that ran, `flow_run` is the id by which Prefect and lineage know it. `state` is
    `running`, `complete`, `partial`, `refused`, `failed`, `cancelled` (by a person, on Prefect's page),
    `interrupted` (by Ctrl-C or SIGTERM) or `died`, which the next run or `status` says of it. `doing` is the
    stage that is under way, or in which the run ended. `foreseen` is what `--dry-run` would have said of
    it when it began. `documents`, `dropped`, `nodes` and `edges` count the corpus of the root, which is not
    served before it passes the gate; `served_counts` counts `documents` and `nodes` of `served`; all are null
    where a bucket did not say. `vectors_new` counts the texts that this run encoded, `bytes_written` is the
    size of what lies there of all that it wrote, without the encoder. `llm` says what this run asked of an
    LLM and what that cost, and is null without one. `risks_added` tells of each revision that adds risks, as
    `tasks.refine.batch` does, `opinions` says what an LLM was asked about risks, and `expansion` what
    requests it foretold. `mended` names the files that were missing when the run began, and what was done
    about each. `published` says whether `served` names this run's version. `seconds` holds the duration of
    each stage.
    """

    run_id: str
    flow: str
    specs: list[str]
    started_at: str
    state: str = "running"
    ended_at: str | None = None
    doing: str | None = None
    message: str | None = None
    foreseen: dict[str, Any] | None = None
    published: bool = False
    served: str | None = None
    served_counts: dict[str, int | None] | None = None
    mended: list[str] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    documents: int | None = 0
    dropped: dict[str, int] = field(default_factory=dict)
    nodes: int | None = 0
    edges: int | None = 0
    vectors_new: int = 0
    bytes_written: int | None = None
    risks_added: list[dict[str, Any]] = field(default_factory=list)
    opinions: dict[str, Any] | None = None
    expansion: dict[str, Any] | None = None
    llm: dict[str, Any] | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    flow_run: str | None = None
    _lineage: Lineage | None = None
    _beat: Callable[[], None] = lambda: None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the duration of one stage; what is under way tells that it begins and ends."""
        started, self.doing, DOING.stage = time.monotonic(), name, name
        try:
            with self._lineage.stage(name) if self._lineage else nullcontext():
                self._beat()
                yield
                self.doing = None
                self._beat()
        finally:
            DOING.stage = None
            self.seconds[name] = round(time.monotonic() - started, 2)

    def end_as(self, found: Mapping[str, Any]) -> None:
        """Take over what a flow with a record of its own says of how it ended."""
        self.state, self.message = found["state"], found.get("message")
        self.published, self.checks = found["published"], found["checks"]
        self.vectors_new, self.llm = found["vectors_new"], found["llm"]

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary that JSON can hold."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name[0] != "_"}
        return told | {"specs": [*map(shown_spec, self.specs)]}


@contextmanager
def recorded(
    root: Root, run_id: str, specs: list[str], *, flow: str, mends: bool = True
) -> Iterator[RunRecord]:
    """Write a run's record with its state below the root, also if the run fails or is interrupted.

    The caller holds the root's writer lock. With `mends` the run makes again what files are missing; one that
    reads no source and makes nothing leaves them for the next that does.
    """
    record = RunRecord(run_id, flow, specs, datetime.now(UTC).isoformat())
    DOING.run, DOING.flow = run_id, flow
    record.flow_run = flow_run_id(run_id)
    if load_settings().openlineage:
        record._lineage = Lineage(root, record.as_dict())
    if (begun := _begun.get()) is not None:
        begun.record = record
    mistaken = False  # nothing was done: such a call is no run
    try:
        with _heartbeat(root, record):
            if mends:
                record.mended = [f"{defect.found}: {defect.done}" for defect in mend_missing(root)]
            yield record
    except BaseException as error:
        if record.state == "running":  # else who ended it is known
            interrupted = isinstance(error, KeyboardInterrupt)
            record.state = "interrupted" if interrupted else "failed"
        record.state = "refused" if isinstance(error, GateRefused) else record.state
        record.message = record.message or _message(root, error)
        mistaken = not mends and isinstance(error, (WrongInput, UnknownDocument, NotPublished))
        record.sources = error.reports if isinstance(error, NothingReadable) else record.sources
        record.checks = error.checks if isinstance(error, GateRefused) else record.checks
        raise
    else:
        if record.state != "running":
            return
        good = all(s["state"] in ("complete", "limited") for s in record.sources)
        asked = (record.llm, record.opinions, record.expansion)
        good = good and not any((told or {}).get("partial") for told in asked)
        record.state = "complete" if good else "partial"
    finally:
        _write_last(root, record, kept=not mistaken)


def _write_last(root: Root, record: RunRecord, *, kept: bool) -> None:
    record.ended_at = datetime.now(UTC).isoformat()
    noted = False
    try:
        if kept:
            _count(root, record)
            write_run(root, record.as_dict())
        if record.state in GOOD:
            note_good(root, record.as_dict())
        noted = True
    except SkilleryError as error:  # what ended the run tells more, and this process still has its record
        if record.state in GOOD and not isinstance(error, Unreachable):
            raise
        record.documents = record.nodes = record.edges = None
        record.message = record.message or f"this run's record is not kept: {error}"
        log.warning("the record of run %s is not kept: %s", record.run_id, error)
    finally:  # it waits for the receiver; one that is killed meanwhile is told of by the next run
        with ExitStack() as last:
            if noted:
                last.enter_context(suppress(SkilleryError))
                last.callback(end_heartbeat, root, record.run_id)
            if record._lineage:
                record._lineage.end(record.as_dict())


@contextmanager
def _heartbeat(root: Root, record: RunRecord) -> Iterator[None]:
    """Note every twenty seconds that a run is under way; what no longer is is settled first."""
    ended, turn = threading.Event(), threading.Lock()

    def beat() -> None:  # a full disk, or a bucket that is away, ends a run where it matters
        with turn, suppress(SkilleryError):
            write_heartbeat(root, record.as_dict())

    def go_on() -> None:
        while not ended.wait(_HEARTBEAT_SECONDS):
            beat()

    with suppress(SkilleryError):
        for earlier in settle_died(root):
            if record._lineage:
                record._lineage.end_of(earlier)
    record._beat = beat
    beat()
    thread = threading.Thread(target=go_on, daemon=True, name="skillery-heartbeat")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_BEAT)


def _message(root: Root, error: BaseException) -> str:
    """Return what an error says; libraries say of a full disk where in their own code they met it."""
    full = os.strerror(errno.ENOSPC)
    if full in str(error):
        where = str(error) if isinstance(error, StorageError) else f"{root.uri}: {full}"
        return f"{where}: make room on that disk, and run again"
    return str(error) or type(error).__name__


def _count(root: Root, record: RunRecord) -> None:
    """Fill in what the root holds; if the root cannot be read, the record keeps what the run knew."""
    try:
        counts = corpus_counts(root)
        served = read_served(root)
        sizes = root.sizes(datetime.fromisoformat(record.started_at).timestamp())
    except StorageError as error:
        record.message = record.message or str(error)
        return
    record.documents, record.dropped = counts.documents, counts.dropped
    record.nodes, record.edges = counts.nodes, counts.edges
    record.bytes_written = sum(n for part, n in sizes.items() if part not in _NOT_WRITTEN)
    record.served, record.served_counts = (served.version, served.counts(root)) if served else (None, None)
