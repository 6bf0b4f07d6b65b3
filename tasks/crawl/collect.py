"""Reads one source into raw parts and keeps what is known of its documents up to date."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import polars as pl

from storage.errors import NothingReadable, SourceError, SourceUnavailable
from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import DROPPED, LISTINGS, RAW_DOCUMENTS, SCHEMA_VERSION, Dropped, RawDocument, to_frame
from storage.state import SEEN, append_dropped, read_sources, seen_table, write_source
from tasks.crawl.source import Source

log = logging.getLogger(__name__)

BATCH_DOCUMENTS = 100
BATCH_SECONDS = 30.0
_PARTS_PER_CHECKPOINT = 10


@dataclass(slots=True)
class SourceReport:
    """What a night brought from one source.

    `state` is `complete` (read to its end), `limited` (as far as --limit goes), `partial` (it broke off)
    or `failed` (nothing could be read); `failed` counts reasons, of documents and of the source itself.
    """

    source: str
    state: str = "complete"
    listed: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    retired: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    message: str | None = None


def collect(
    source: Source,
    root: Root,
    *,
    run_id: str,
    now: datetime,
    limit: int | None = None,
    options: Mapping[str, object] | None = None,
) -> SourceReport:
    """Read `source` (its first `limit` documents; None: all) and return what came of it.

    New and changed documents go to raw parts before anything judges them; documents that were seen before
    and are as they were cost nothing but their `last_seen_at`. A source that cannot be read, wholly or
    from some point on, leaves its documents in place, marked stale.
    """
    report = SourceReport(source.spec)
    crawl = _Crawl(root, source.spec, run_id, now, report)
    remembered, read_as = read_sources(root).get(source.spec, {}), dict(options or {})
    try:
        version = source.version()
        if version is not None and _covers(remembered, version, limit, read_as):
            report.state = str(remembered["state"])
            report.listed = report.unchanged = crawl.touch_all(remembered["last_read"])
            limit = remembered["limit"]
            log.info("%s is as it was: %d documents unchanged", source.spec, report.unchanged)
        else:
            crawl.read(source.read(), limit)
    except (SourceError, SourceUnavailable) as error:
        version = None
        report.state = "partial" if report.listed else "failed"
        report.message = str(error)
        report.failed[error.reason] = report.failed.get(error.reason, 0) + 1
        crawl.mark_stale()
        log.warning("%s", error)
    crawl.checkpoint()
    record = _record(report, remembered, now)
    write_source(root, source.spec, {**record, "version": version, "limit": limit, "options": read_as})
    return report


def require_readable(reports: list[dict[str, Any]]) -> None:
    """Let a run go on that read at least one source.

    Raises:
        NothingReadable: It read none; the message holds each source's.
    """
    if reports and all(report["state"] == "failed" for report in reports):
        raise NothingReadable(reports)


def _covers(remembered: dict[str, Any], version: str, limit: int | None, read_as: dict[str, object]) -> bool:
    """Tell whether the last reading went as far as this one is to go, the same way, with nothing failing."""
    as_it_was = remembered.get("version") == version and remembered.get("options") == read_as
    if remembered.get("failed") or not as_it_was:
        return False
    if remembered.get("state") == "complete":
        return True
    return bool(remembered.get("state") == "limited" and limit is not None and limit <= remembered["limit"])


def _record(report: SourceReport, remembered: dict[str, Any], now: datetime) -> dict[str, Any]:
    good, whole = report.state in ("complete", "limited"), report.state == "complete"
    return {
        **asdict(report),
        "last_read": now.isoformat() if good else remembered.get("last_read"),
        "last_complete": now.isoformat() if whole else remembered.get("last_complete"),
        "stale_since": None if good else remembered.get("stale_since") or now.isoformat(),
    }


def digest_of(raw: RawDocument) -> str:
    """Return the digest that tells a changed document: its bytes, its bundle, its place.

    A commit that leaves the document as it was is none: it does not count where the URL names it.
    """
    beside = [asdict(f) for f in raw.files or ()] + [asdict(f) for f in raw.licence_files]
    url = raw.url.replace(raw.commit, "") if raw.url and raw.commit else raw.url
    missing = [raw.content is None, raw.files is None]
    parts = json.dumps([raw.raw_hash, missing, beside, raw.path, url], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


class _Crawl:
    """One source's reading: a buffer of documents to write, and rows of `seen` to change."""

    def __init__(self, root: Root, spec: str, run_id: str, now: datetime, report: SourceReport) -> None:
        self.root, self.spec, self.run_id, self.now, self.report = root, spec, run_id, now, report
        self.table = seen_table(root)
        known = self.table.read().filter(pl.col("source") == spec)
        self.known: dict[str, dict[str, Any]] = {row["doc_id"]: row for row in known.to_dicts()}
        self.touched: dict[str, dict[str, Any]] = {}
        self.met: set[str] = set()
        self.dropped: list[Dropped] = []
        self.place = f"date={now:%Y-%m-%d}/run={run_id}"
        self.name = f"part-{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
        # A run's name may be used again, by a retry: parts are never rewritten.
        self.part = sum(f"/{self.name}-" in f for f in root.files(f"raw/documents/{self.place}"))

    def touch_all(self, since: str) -> int:
        """Note that what the reading at `since` met (ISO time) was there again; return how many that is."""
        last = datetime.fromisoformat(since)
        rows = [r for r in self.known.values() if r["retired_at"] is None and r["last_seen_at"] >= last]
        self.touched = {r["doc_id"]: {**r, "last_seen_at": self.now, "stale_since": None} for r in rows}
        return len(rows)

    def mark_stale(self) -> None:
        """Note that what was not met could not be looked at; unknown is never deleted."""
        for doc_id, row in self.known.items():
            if doc_id not in self.met and row["retired_at"] is None:
                self.touched[doc_id] = {**row, "stale_since": row["stale_since"] or self.now}

    def read(self, items: Iterable[RawDocument | Dropped], limit: int | None) -> None:
        """Take in the source's items in batches; retire what is gone where it was read to its end."""
        taken, run_id = self._taken(items), self.run_id
        try:
            for batch in _batches(self._documents(taken, limit)):
                self._write(batch)
            whole = limit is None or self.report.listed < limit or _at_end(taken)
        finally:
            self.report.failed = dict(Counter(d.reason for d in self.dropped))
            append_dropped(self.root, run_id, to_frame(self.dropped, DROPPED, run_id=run_id))
        self.report.state = "complete" if whole else "limited"
        for doc_id, row in self.known.items():
            if doc_id in self.met or row["retired_at"] is not None:
                continue
            if self._unreadable(doc_id):
                self.touched[doc_id] = {**row, "stale_since": row["stale_since"] or self.now}
            elif whole:
                self.touched[doc_id] = {**row, "retired_at": self.now}
                self.report.retired += 1

    def _unreadable(self, doc_id: str) -> bool:
        """Tell whether a document, or a folder above it, is there but could not be read."""
        return any(
            doc_id == d.doc_id or (d.reason == "unreadable" and doc_id.startswith(f"{d.doc_id}/"))
            for d in self.dropped
            if d.lost_to is None
        )

    def _taken(self, items: Iterable[RawDocument | Dropped]) -> Iterator[RawDocument]:
        """Pass the documents on, each id once; keep what was seen but not taken."""
        for item in items:
            if isinstance(item, Dropped):
                self.dropped.append(item)
            elif item.doc_id in self.met:
                detail = f"{item.path or item.doc_id}: the source holds this id twice, the first counts"
                twice = Dropped(item.doc_id, self.spec, "duplicate_id", detail, lost_to=item.doc_id)
                self.dropped.append(twice)
            else:
                yield item

    def _documents(self, taken: Iterator[RawDocument], limit: int | None) -> Iterator[RawDocument]:
        """Yield what is new or changed, note what is as it was."""
        for raw in itertools.islice(taken, limit):
            self.report.listed += 1
            self.met.add(raw.doc_id)
            known, digest = self.known.get(raw.doc_id), digest_of(raw)
            is_new = known is None or known["retired_at"] is not None
            as_it_was = known is not None and known["digest"] == digest
            self.report.new += is_new
            self.report.changed += not (is_new or as_it_was)
            self.report.unchanged += as_it_was and not is_new
            if known is not None and as_it_was:
                self._touch(raw, digest, known["raw_part"], known["first_seen_at"])
            else:
                yield raw

    def _touch(self, raw: RawDocument, digest: str, part: str, first_seen_at: datetime) -> None:
        self.touched[raw.doc_id] = {
            "doc_id": raw.doc_id, "source": self.spec, "digest": digest, "raw_part": part,
            "first_seen_at": first_seen_at, "last_seen_at": self.now, "stale_since": None, "retired_at": None,
        }  # fmt: skip

    def _write(self, batch: list[RawDocument]) -> None:
        """Write one part of documents and of listings, never rewritten, then note what it holds."""
        place = f"{self.place}/{self.name}-{self.part:05d}.parquet"
        constant = {"run_id": self.run_id, "schema_version": SCHEMA_VERSION}
        frame = to_frame(batch, RAW_DOCUMENTS, fetched_at=self.now, **constant)
        write_frame(self.root, f"raw/documents/{place}", frame, RAW_DOCUMENTS)
        names = pl.col("doc_id").str.split("/").list.last()
        listed = frame.select(
            "source", "kind", "author", "url", "category", "tags", "stars", "repo_id", "run_id",
            "schema_version", source_id="doc_id", name=names, description=pl.lit(None, pl.String),
            updated_at=pl.lit(None, LISTINGS["updated_at"]), seen_at="fetched_at",
        )  # fmt: skip
        write_frame(self.root, f"raw/listings/{place}", listed.select(LISTINGS.names()), LISTINGS)
        for raw in batch:
            first = self.known.get(raw.doc_id, {}).get("first_seen_at", self.now)
            self._touch(raw, digest_of(raw), f"raw/documents/{place}", first)
        self.part += 1
        if self.part % _PARTS_PER_CHECKPOINT == 0:
            log.info("%s: %d documents read", self.spec, self.report.listed)
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write what is known now, so that a run that dies later need not look at it again."""
        if not self.touched:
            return
        ids = list(self.touched)
        others = self.table.read(columns=None).filter(
            pl.col("doc_id").is_in(ids), pl.col("source") != self.spec
        )
        rows = pl.DataFrame(list(self.touched.values()), schema=SEEN)
        self.table.replace(ids, pl.concat([others, rows]))
        self.known.update(self.touched)
        self.touched = {}


def _at_end(documents: Iterator[RawDocument]) -> bool:
    """Tell whether nothing follows; where that cannot be told, as far as was asked has been read."""
    try:
        return next(documents, None) is None
    except (SourceError, SourceUnavailable):
        return False


def _batches(documents: Iterator[RawDocument]) -> Iterator[list[RawDocument]]:
    """Cut a stream into parts of at most 100 documents or 30 seconds; one that breaks off is cut there."""
    batch: list[RawDocument] = []
    started = time.monotonic()
    try:
        for raw in documents:
            batch.append(raw)
            if len(batch) >= BATCH_DOCUMENTS or time.monotonic() - started > BATCH_SECONDS:
                yield batch
                batch, started = [], time.monotonic()
    except (SourceError, SourceUnavailable):
        if batch:
            yield batch
        raise
    if batch:
        yield batch
