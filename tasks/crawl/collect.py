"""Collects one source: documents go to raw parts, their state to `seen`, and how far it was read is kept."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from typing import Any

from storage.errors import NothingReadable, SkilleryError, SourceError, SourceUnavailable
from storage.root import Root
from storage.schemas import DROPPED, Dropped, Listing, RawDocument, to_frame
from storage.state import append_dropped, read_sources, write_source
from storage.tombstones import Forgotten
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.raw_parts import RawParts, raw_bytes
from tasks.crawl.seen import Covers, SeenRows, Verdict
from tasks.crawl.source.base import Gone, Item, Missed, Source, Unchanged
from tasks.crawl.source.bundle import links_out
from tasks.crawl.source.credentials import without_credentials
from tasks.crawl.source.identity import doc_key, shown_spec
from tasks.crawl.source.tombstones import REASON as FORGOTTEN
from tasks.crawl.source.tombstones import drop_forgotten
from tasks.crawl.source.unchanged import document_digest, same_source
from tasks.models.fields import without_surrogates

log = logging.getLogger(__name__)
BATCH_SECONDS = 30.0
# A checkpoint rewrites all rows of `seen`: one after so many batches would cost a fast source more than its
# documents do.
_CHECKPOINT_SECONDS = 10.0
_QUOTA = "quota"  # a reading that ends with the day's quota has not failed: it goes on the next day


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The outcome of crawling one source once."""

    source: str
    # `complete` (read to its end), `limited` (by --limit), `partial` (it broke off, or the day's quota ended)
    # or `failed` (nothing could be read).
    state: str = "complete"
    listed: int = 0  # documents looked at, whatever came of them
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    retired: int = 0  # their source no longer holds them
    withdrawn: int = 0  # they may no longer be served, as after a takedown
    failed: dict[str, int] = field(default_factory=dict)  # drops by reason, and why the source broke off
    requests: int = 0  # sent, retries included
    quota_left: int | None = None  # requests left of the day's quota; None: there is no quota
    message: str | None = None


def collect(
    source: Source, root: Root, *, run_id: str, now: datetime, limit: int | None = None,
    settings: CrawlSettings | None = None,
) -> SourceReport:  # fmt: skip
    """Read `source` (its first `limit` documents; None: all) and report what came of it.

    New and changed documents go to raw parts before any filter; of unchanged ones only `last_seen_at` is
    written. If the source cannot be read to its end, documents it did not yield stay, marked stale. With
    other limits of documents than the last time, all are read again. What is new was first seen when the
    reading `began` (see `list_sources`).
    """
    settings = settings or CrawlSettings()
    remembered = read_sources(root).get(source.spec, {})
    began = datetime.fromisoformat(remembered.get("began") or now.isoformat())
    ingestion = _Ingestion(source, root, run_id, now, settings, began=began)
    read_as = settings.model_dump(include={"max_document_bytes", "keep_files", "keep_bytes"})
    version: str | None = None
    try:
        found = source.version()
        unchanged = found is not None and same_source(remembered, found, limit, read_as)
        # If this run dies, part of the new documents is on disk: the last version no longer tells what is
        # kept, even if the source goes back to it.
        _forget_version(root, source.spec, remembered)
        if unchanged:
            count = ingestion.repeat(str(remembered["state"]), remembered["last_read"])
            limit = remembered["limit"]
            log.info("%s is as it was: %d documents unchanged", source.spec, count)
        else:
            ingestion.read(limit)
        version = found
    except Exception as error:
        ingestion.break_off(_of_source(source.spec, error))
    report = ingestion.close()
    read = {**_record(report, remembered, now), "version": version, "limit": limit, "options": read_as}
    write_source(root, source.spec, {**remembered, **read})
    return report


def collect_some(
    source: Source, root: Root, covers: Covers, *, run_id: str, now: datetime,
    settings: CrawlSettings | None = None,
) -> SourceReport:  # fmt: skip
    """Read the documents of `source` whose ids are covered, retire those it lacks, and report.

    The remembered version is deleted, so that the next complete reading looks at everything.
    """
    ingestion = _Ingestion(source, root, run_id, now, settings or CrawlSettings(), covers)
    # Before anything is kept: if this run dies, a skill retired and put back must not count as unchanged.
    _forget_version(root, source.spec, read_sources(root).get(source.spec, {}))
    try:
        ingestion.read()
    except Exception as error:
        ingestion.break_off(_of_source(source.spec, error))
    return ingestion.close()


def _of_source(spec: str, error: Exception) -> SourceError | SourceUnavailable:
    """Return an error as one of its source, also one that nobody foresaw; raise errors of the root."""
    if isinstance(error, SourceError | SourceUnavailable):
        return error
    if isinstance(error, SkilleryError | OSError | MemoryError):
        raise error
    log.exception("%s failed in a way that was not foreseen", spec)
    detail = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return SourceUnavailable(spec, "unforeseen", f"{detail}; what was read before is kept")


def _forget_version(root: Root, spec: str, remembered: dict[str, Any]) -> None:
    if remembered.get("version") is not None:
        write_source(root, spec, {**remembered, "version": None})


def require_readable(reports: list[dict[str, Any]]) -> None:
    """Raise NothingReadable, with the message of each source, if a run could read none."""
    if reports and all(report["state"] == "failed" for report in reports):
        raise NothingReadable(reports)


def _record(report: SourceReport, remembered: dict[str, Any], now: datetime) -> dict[str, Any]:
    good, whole = report.state in ("complete", "limited"), report.state == "complete"
    return {
        **asdict(report),
        "last_read": now.isoformat() if good else remembered.get("last_read"),
        "last_complete": now.isoformat() if whole else remembered.get("last_complete"),
        "stale_since": None if good else remembered.get("stale_since") or now.isoformat(),
        "began": None,
    }


class _Ingestion:
    """Ingests the items of one source, or of the documents that `covers` accepts, and reports on them.

    Parts are written before the rows of `seen` that name them, and the source's checkpoint comes last: a run
    that dies in between repeats work, and loses none.
    """

    def __init__(
        self, source: Source, root: Root, run_id: str, now: datetime, settings: CrawlSettings,
        covers: Covers = lambda _: True, began: datetime | None = None,
    ) -> None:  # fmt: skip
        self._source, self._root, self._run_id = source, root, run_id
        self._most_bytes, self._most_seconds = settings.source_bytes, settings.source_seconds
        self._bytes = 0
        self._seen = SeenRows(root, source.spec, now, covers, began or now)
        self._parts = RawParts(root, source.spec, run_id, now)
        self._counts: Counter[str] = Counter()  # by field of SourceReport
        self._verdicts: dict[str, Verdict] = {}  # of documents that are not written yet
        self._dropped: list[Dropped] = []
        self._missed: set[str] = set()
        self._forgotten = Forgotten.load(root)
        self._state = "complete"
        self._error: SourceError | SourceUnavailable | None = None
        self._began = self._batch_began = self._checkpointed = time.monotonic()
        for raw in self._seen.moved():
            self._verdicts[raw.doc_id] = "new"
            self._parts.add(raw)
        if self._verdicts:
            self._write_batch()

    def repeat(self, state: str, since: str) -> int:
        """Count the documents of the reading at `since` (ISO time) as unchanged, with its state."""
        self._state, unchanged = state, self._seen.repeat(since)
        self._counts.update(listed=unchanged, unchanged=unchanged)
        return unchanged

    def read(self, limit: int | None = None) -> None:
        """Ingest the source's items, up to `limit` documents; at its end, retire what it did not yield.

        If the source raises, what it yielded before is kept.
        """
        items = iter(self._source.read())
        try:
            ended = self._take(items, limit) or self._at_end(items)
        finally:
            self._write_batch()
        # A dropped document counts against the limit too.
        fewer = limit is None or self._counts["listed"] + len(self._dropped) < limit
        whole = limit is None or (ended and (self._source.exhaustive or fewer))
        self._state = "complete" if whole else "limited"
        if self._source.exhaustive:
            self._retire_absent(whole=whole)

    def break_off(self, error: SourceError | SourceUnavailable) -> None:
        """Note why the reading ended early; wanted documents that it did not reach become stale."""
        log.warning("%s", error, extra={"source": shown_spec(self._source.spec)})
        self._error = error
        self._state = "partial" if self._counts["listed"] or error.reason == _QUOTA else "failed"
        if self._source.exhaustive or self._state == "failed":
            self._seen.mark_stale()

    def close(self) -> SourceReport:
        """Write what is left to write, and return the report."""
        self._append(self._dropped)
        self._checkpoint()
        failed = Counter(row.reason for row in self._dropped)
        failed.update([self._error.reason] if self._error else [])
        message = str(self._error) if self._error else links_out(self._dropped) or None
        told: dict[str, Any] = {**self._counts, **asdict(self._source.usage()), "failed": dict(failed)}
        return SourceReport(shown_spec(self._source.spec), self._state, **told, message=message)

    def _checkpoint(self) -> None:
        """Write the rows of `seen`, so that a run that dies later need not repeat them."""
        self._seen.write(lambda ids: self._source.invalidate(self._seen.claims.given(ids)))
        # Every caller has written the parts before: all that was yielded is on disk.
        self._source.checkpoint()
        self._checkpointed = time.monotonic()

    def _take(self, items: Iterator[Item], limit: int | None) -> bool:
        """Ingest up to `limit` documents; return whether the items ended before."""
        while limit is None or self._counts["listed"] < limit:
            item = next(items, None)
            if item is None:
                return True
            self._handle(item)
            self._check_budget()
            if self._parts.is_full() or time.monotonic() - self._batch_began > BATCH_SECONDS:
                self._write_batch()
        return False

    def _check_budget(self) -> None:
        over = ""
        if self._bytes > self._most_bytes:
            over = f"it holds over {self._most_bytes:,} bytes; see SKILLERY_SOURCE_BYTES"
        elif time.monotonic() - self._began > self._most_seconds:
            over = f"reading it takes over {self._most_seconds:,g} s; see SKILLERY_SOURCE_SECONDS"
        if over:
            raise SourceUnavailable(self._source.spec, "budget", f"{over}; what was read before is kept")

    def _at_end(self, items: Iterator[Item]) -> bool:
        """Return whether no document follows; after an error one may."""
        try:
            for item in items:
                if not isinstance(item, Dropped):
                    return False
                self._dropped.append(self._seen.claims.owned(without_credentials(item)))
        except (SourceError, SourceUnavailable):
            return False
        return True

    def _handle(self, item: Item) -> None:
        item = self._seen.claims.owned(without_credentials(item))
        if isinstance(item, RawDocument | Listing) and (kept_out := drop_forgotten(self._forgotten, item)):
            self._counts["listed"] += isinstance(item, RawDocument)
            self._dropped.append(kept_out)
            return
        match item:
            case RawDocument():
                self._document(item)
            case Dropped():
                self._dropped.append(item)
            case Listing():
                self._parts.add(item)
            case Unchanged():
                self._unchanged(item.doc_ids)
            case Missed():
                self._counts["listed"] += len(item.doc_ids)
                self._missed.update(item.doc_ids)
                self._seen.mark_stale(item.doc_ids)
                for doc_id in item.doc_ids:
                    self._drop(doc_id, item.reason, item.detail)
            case Gone():
                self._gone(item)

    def _document(self, raw: RawDocument) -> None:
        self._bytes += raw_bytes(raw)
        verdict = self._seen.compare(raw.doc_id, document_digest(raw))
        if verdict == "repeated":
            detail = f"{raw.path or raw.doc_id}: the source holds this id twice, the first counts"
            self._drop(raw.doc_id, "duplicate_id", detail, lost_to=raw.doc_id)
            return
        self._counts["listed"] += 1
        if verdict in ("new", "changed"):
            self._verdicts[raw.doc_id] = verdict
            self._parts.add(raw)
        else:
            self._counts["new" if verdict == "returned" else verdict] += 1

    def _unchanged(self, doc_ids: Collection[str]) -> None:
        for doc_id in doc_ids:
            verdict = self._seen.compare(doc_id, None)
            self._counts["listed"] += verdict != "repeated"
            if verdict == "unknown":
                reason = FORGOTTEN if self._forgotten.covers(doc_id) else "unknown"
                self._drop(doc_id, reason, "said to be unchanged, not held")
            elif verdict != "repeated":
                self._counts["new" if verdict == "returned" else verdict] += 1

    def _gone(self, item: Gone) -> None:
        for doc_id in item.doc_ids:
            if self._seen.retire(doc_id):
                self._counts.update(["listed", item.reason])
                # Written at once: a backfill replays departures from this row, and the run may die.
                self._append([Dropped(doc_id, self._source.spec, item.reason, item.detail)])

    def _retire_absent(self, *, whole: bool) -> None:
        """Retire what a source read to its end no longer holds.

        What it could not read is stale, with all below it: of a repository or an archive that could not be
        had, nobody knows what it holds.
        """
        there = [row for row in self._dropped if row.lost_to is None]
        ids = {row.doc_id for row in there}
        folders = {
            *map(doc_key, self._missed),
            *(doc_key(r.doc_id) for r in there if r.reason == "unreadable"),
        }
        for doc_id in self._seen.absent():
            above = accumulate(doc_key(doc_id).split("/"), "{}/{}".format)
            if doc_id in ids or not folders.isdisjoint(above):
                self._seen.mark_stale([doc_id])
            elif whole and self._seen.retire(doc_id):
                self._counts["retired"] += 1

    def _drop(self, doc_id: str, reason: str, detail: str, lost_to: str | None = None) -> None:
        self._dropped.append(Dropped(doc_id, self._source.spec, reason, detail, lost_to=lost_to))

    def _append(self, rows: list[Dropped]) -> None:
        # A row whose names no file can hold is dropped under names that one can.
        clean = without_surrogates
        rows = [replace(row, doc_id=clean(row.doc_id), detail=clean(row.detail)) for row in rows]
        append_dropped(self._root, self._run_id, to_frame(rows, DROPPED, run_id=self._run_id))

    def _write_batch(self) -> None:
        placed, refused = self._parts.write(list_documents=not self._source.gives_listings)
        for raw, part in placed:
            self._seen.put(raw, part)
            self._counts[self._verdicts.pop(raw.doc_id)] += 1
        for row, why in refused:
            if isinstance(row, RawDocument):
                del self._verdicts[row.doc_id]
                self._seen.miss(row.doc_id)  # what was there before stays, stale
            self._drop(row.doc_id if isinstance(row, RawDocument) else row.source_id, "unreadable", why)
        if time.monotonic() - self._checkpointed > _CHECKPOINT_SECONDS:
            said = {"source": self._source.spec}
            log.info("%s: %d documents looked at", self._source.spec, self._counts["listed"], extra=said)
            self._checkpoint()
        self._batch_began = time.monotonic()
