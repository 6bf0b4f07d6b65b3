"""Usage of what a root serves: what was asked and what answered, in Parquet by day, kept for 90 days.

An event has a row, and one more for each document that answered it, so that `forget` finds these.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import TIME

log = logging.getLogger(__name__)
Mode = Literal["off", "counts", "texts"]
Watch = Callable[[tuple[str, str, bool | None] | None, int], None]
"""Is told of each event by whom, what and whether a skill fits, and how many wait to be written."""
FOLDER = "usage"
KEPT = timedelta(days=90)
USAGE = pl.Schema({
    "event_id": pl.String(), "at": TIME, "via": pl.String(), "action": pl.String(),
    "rank": pl.Int32(), "doc_id": pl.String(), "fits": pl.Boolean(), "milliseconds": pl.Float64(),
    "version": pl.String(), "query": pl.String(),
})  # fmt: skip
DROPPED = "dropped"
"""The action of a row whose `rank` counts events that were not kept, since too many came at once."""

_MOST = 10_000  # events that wait to be written
_SOON, _MANY = 30.0, 2_000  # seconds, or events, after which they are
_NEXT = timedelta(minutes=30)  # after a search, within which a skill is used for what was asked
_RANKS = 10  # documents of an answer that are kept


class UsageLog:
    """Notes events; a thread of its own writes them, so that no answer waits.

    They go nowhere (mode `off`), below the root without what was asked (`counts`), or with it, redacted.
    """

    def __init__(self, root: Root, mode: Mode, redact: Callable[[str], str]) -> None:
        self._root, self._mode, self._redact = root, mode, redact
        self._held: deque[tuple[object, ...]] = deque()
        self._lost, self._day = 0, ""
        self._wake, self._ended = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.watch: Watch = lambda *_: None

    def note(
        self, via: str, action: str, doc_ids: Sequence[str], *, query: str | None = None,
        fits: bool | None = None, milliseconds: float = 0.0, version: str | None = None,
    ) -> None:  # fmt: skip
        """Keep an event until it is written; where too many wait, it is counted alone."""
        if self._mode == "off" or len(self._held) >= _MOST:
            self._lost += self._mode != "off"
            self.watch((via, action, fits), len(self._held))
            return
        asked = query if self._mode == "texts" else None
        event = (datetime.now(UTC), via, action, tuple(doc_ids[:_RANKS]), fits, milliseconds, version, asked)
        self._held.append(event)
        self.watch((via, action, fits), len(self._held))
        if len(self._held) >= _MANY:
            self._wake.set()

    def start(self) -> None:
        """Begin to write what is noted every 30 seconds, until `close`."""
        with self._starting:
            if self._mode != "off" and self._thread is None:
                self._thread = threading.Thread(target=self._write_on, name="usage", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5)
        self.flush()

    def flush(self) -> None:
        """Write what waits; what cannot be written is counted, and named in the log once a while."""
        events = [self._held.popleft() for _ in range(len(self._held))]
        lost, self._lost = self._lost, 0
        self.watch(None, len(self._held))
        if not events and not lost:
            return
        try:
            rows = [row for event in events for row in self._rows(event)]
            if lost:
                rows.append((_id(), datetime.now(UTC), "log", DROPPED, lost, None, None, None, None, None))
            frame = pl.DataFrame(rows, USAGE, orient="row")
            for day, part in frame.group_by(pl.col("at").dt.date()):
                write_frame(self._root, f"{FOLDER}/day={day[0]}/part-{_id()}.parquet", part, USAGE)
        except Exception as error:  # whatever it is, events are noted on
            self._lost += lost + len(events)
            log.warning("usage is not written: %s", error)

    def _write_on(self) -> None:
        while not self._ended:
            self._wake.wait(_SOON)
            self._wake.clear()
            self.flush()
            if self._day != (today := datetime.now(UTC).date().isoformat()):
                self._day = today
                tidy_usage(self._root, datetime.now(UTC))

    def _rows(self, event: tuple[object, ...]) -> list[tuple[object, ...]]:
        at, via, action, doc_ids, fits, took, version, asked = event
        said = None if asked is None else self._redact(_text(asked))
        whose = (_id(), at, via, action)
        told = (fits, took, version)
        documents = enumerate(doc_ids, start=1)  # type: ignore[arg-type, var-annotated]
        return [(*whose, 0, None, *told, said), *((*whose, n, _text(d), *told, None) for n, d in documents)]


def read_usage(root: Root, since: datetime) -> pl.DataFrame:
    """Return the rows of the days from `since` on, in the order of time; raises as `read_frame`."""
    days = {day: files for day, files in _days(root).items() if day >= since.date().isoformat()}
    parts = [read_frame(root, file, USAGE) for files in days.values() for file in files]
    # A day whose files are being merged, or were when that was killed, holds rows twice.
    return pl.concat([USAGE.to_frame(), *parts]).unique(["event_id", "rank"]).sort("at", "event_id", "rank")


def logged_searches(root: Root, now: datetime) -> list[tuple[str, str]]:
    """Return what was asked in 30 days, each text once, and the skill that was the best of what fits.

    It is empty where texts are not kept; raises as `read_frame`.
    """
    rows = read_usage(root, now - timedelta(days=30)).filter(pl.col("action") == "search", pl.col("fits"))
    asked = rows.filter(pl.col("query").is_not_null()).select("event_id", "query")
    best = rows.filter(pl.col("rank") == 1).select("event_id", "doc_id")
    found = asked.join(best, on="event_id", maintain_order="left").unique(
        "query", keep="last", maintain_order=True
    )
    return [(query, doc_id) for query, doc_id in found.select("query", "doc_id").iter_rows()]


def served_searches(root: Root, now: datetime, days: int) -> list[tuple[str, str]]:
    """Return what was asked in the last days, and the skill found by it that was paged or installed next.

    It was so by the same way within half an hour. Empty where texts are not kept; raises as `read_frame`.
    """
    rows = read_usage(root, now - timedelta(days=days)).sort("at")
    asked = rows.filter(pl.col("query").is_not_null()).select("event_id", "query")
    shown = rows.filter(pl.col("action") == "search", pl.col("rank") > 0)
    used = rows.filter(pl.col("action").is_in(["page", "install"]), pl.col("rank") > 0)
    found = used.select("at", "via", "doc_id").join_asof(
        shown.select("at", "via", "doc_id", "event_id"),
        on="at", by=["via", "doc_id"], tolerance=_NEXT, check_sortedness=False,
    )  # fmt: skip
    served = found.drop_nulls("event_id").join(asked, on="event_id", maintain_order="left")
    return [*dict.fromkeys(served.select("query", "doc_id").iter_rows())]


def tidy_usage(root: Root, now: datetime) -> None:
    """Remove days that are older than 90 days, and merge the files of each day that is over.

    What cannot be read or written stays as it is, and the log says so.
    """
    try:
        for day, files in _days(root).items():
            if day < (now - KEPT).date().isoformat():
                root.delete(f"{FOLDER}/day={day}")
            elif day < now.date().isoformat() and len(files) > 1:
                _merge_day(root, day, files)
    except Exception as error:  # no answer, and no run, ends for it
        log.warning("usage is not tidied: %s", error)


def _merge_day(root: Root, day: str, files: Sequence[str]) -> None:
    merged = pl.concat([read_frame(root, file, USAGE) for file in files]).unique(["event_id", "rank"])
    write_frame(root, f"{FOLDER}/day={day}/part-{_id()}.parquet", merged.sort("at", "rank"), USAGE)
    for file in files:
        root.delete(file)


def _days(root: Root) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in root.files(FOLDER, ".parquet"):
        found.setdefault(file.split("/")[1].removeprefix("day="), []).append(file)
    return found


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()  # half a character cannot be written


def _id() -> str:
    return uuid.uuid4().hex[:16]
