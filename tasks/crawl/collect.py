"""Reads one source into raw parts and keeps what is known of its documents up to date."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import polars as pl

from storage.errors import NothingReadable, SourceError, SourceUnavailable
from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import LISTINGS, RAW_DOCUMENTS, SCHEMA_VERSION, Dropped, RawDocument, to_frame
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
    source: Source, root: Root, *, run_id: str, now: datetime, limit: int | None = None
) -> SourceReport:
    """Read `source` (its first `limit` documents; None: all) and return what came of it.

    New and changed documents go to raw parts before anything judges them; documents that were seen before
    and are as they were cost nothing but their `last_seen_at`. A source that cannot be read, wholly or
    from some point on, leaves its documents in place, marked stale.
    """
    report = SourceReport(source.spec)
    crawl = _Crawl(root, source.spec, run_id, now, report)
    remembered = read_sources(root).get(source.spec, {})
    try:
        version = source.version()
        if version is not None and version == remembered.get("version") and _covers(remembered, limit):
            report.state = str(remembered["state"])
            report.listed = report.unchanged = crawl.touch_all()
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
    write_source(root, source.spec, _record(report, remembered, version, limit, now))
    return report


def require_readable(reports: list[dict[str, Any]]) -> None:
    """Let a run go on that read at least one source.

    Raises:
        NothingReadable: It read none; the message holds each source's.
    """
    if reports and all(report["state"] == "failed" for report in reports):
        raise NothingReadable("; ".join(str(report["message"]) for report in reports))


def _covers(remembered: dict[str, Any], limit: int | None) -> bool:
    """Tell whether the last reading went at least as far as this one is to go, with nothing failing."""
    if remembered.get("failed"):
        return False
    if remembered.get("state") == "complete":
        return True
    return bool(remembered.get("state") == "limited" and limit is not None and limit <= remembered["limit"])


def _record(
    report: SourceReport, remembered: dict[str, Any], version: str | None, limit: int | None, now: datetime
) -> dict[str, Any]:
    good = report.state in ("complete", "limited")
    last = now.isoformat() if good else remembered.get("last_complete")
    stale = None if good else remembered.get("stale_since") or now.isoformat()
    return {**asdict(report), "version": version, "limit": limit, "last_complete": last, "stale_since": stale}


def digest_of(raw: RawDocument) -> str:
    """Return the digest that tells a changed document: its bytes, its bundle, its place."""
    beside = [asdict(f) for f in raw.files or ()] + [asdict(f) for f in raw.licence_files]
    parts = json.dumps([raw.raw_hash, raw.files is None, beside, raw.path, raw.url], sort_keys=True)
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
        self.part = 0

    def touch_all(self) -> int:
        """Note that every document known and not retired was there again; return how many."""
        rows = [r for r in self.known.values() if r["retired_at"] is None]
        self.touched = {r["doc_id"]: {**r, "last_seen_at": self.now, "stale_since": None} for r in rows}
        return len(rows)

    def mark_stale(self) -> None:
        """Note that what was not met could not be looked at; unknown is never deleted."""
        for doc_id, row in self.known.items():
            if doc_id not in self.met and row["retired_at"] is None:
                self.touched[doc_id] = {**row, "stale_since": row["stale_since"] or self.now}

    def read(self, items: Iterable[RawDocument | Dropped], limit: int | None) -> None:
        """Take in the source's items in batches; retire what is gone where it was read to its end."""
        iterator = iter(items)
        dropped: list[Dropped] = []
        try:
            for batch in _batches(self._documents(iterator, limit, dropped)):
                self._write(batch)
            whole = limit is None or self.report.listed < limit or next(iterator, None) is None
        finally:
            self.report.failed = dict(Counter(d.reason for d in dropped))
            if dropped:
                append_dropped(self.root, self.run_id, dropped)
        self.report.state = "complete" if whole else "limited"
        unreadable = {d.doc_id for d in dropped}
        for doc_id in set(self.known) - self.met:
            row = self.known[doc_id]
            if doc_id in unreadable:
                self.touched[doc_id] = {**row, "stale_since": row["stale_since"] or self.now}
            elif whole and row["retired_at"] is None:
                self.touched[doc_id] = {**row, "retired_at": self.now}
                self.report.retired += 1

    def _documents(
        self, items: Iterator[RawDocument | Dropped], limit: int | None, dropped: list[Dropped]
    ) -> Iterator[RawDocument]:
        for raw in itertools.islice(_taken(items, dropped), limit):
            self.report.listed += 1
            self.met.add(raw.doc_id)
            known, digest = self.known.get(raw.doc_id), digest_of(raw)
            if known is not None and known["digest"] == digest:
                self.report.unchanged += known["retired_at"] is None
                self.report.new += known["retired_at"] is not None
                self._touch(raw, digest, known["raw_part"], known["first_seen_at"])
                continue
            self.report.new += known is None
            self.report.changed += known is not None
            yield raw

    def _touch(self, raw: RawDocument, digest: str, part: str, first_seen_at: datetime) -> None:
        self.touched[raw.doc_id] = {
            "doc_id": raw.doc_id, "source": self.spec, "digest": digest, "raw_part": part,
            "first_seen_at": first_seen_at, "last_seen_at": self.now, "stale_since": None, "retired_at": None,
        }  # fmt: skip

    def _write(self, batch: list[RawDocument]) -> None:
        """Write one part of documents and of listings, never rewritten, then note what it holds."""
        slug = hashlib.sha256(self.spec.encode()).hexdigest()[:8]
        place = f"date={self.now:%Y-%m-%d}/run={self.run_id}/part-{slug}-{self.part:05d}.parquet"
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


def _taken(items: Iterator[RawDocument | Dropped], dropped: list[Dropped]) -> Iterator[RawDocument]:
    """Pass the documents on, keep what was seen but not taken."""
    for item in items:
        if isinstance(item, Dropped):
            dropped.append(item)
        else:
            yield item


def _batches(documents: Iterator[RawDocument]) -> Iterator[list[RawDocument]]:
    """Cut a stream into parts of at most 100 documents or 30 seconds."""
    batch: list[RawDocument] = []
    started = time.monotonic()
    for raw in documents:
        batch.append(raw)
        if len(batch) >= BATCH_DOCUMENTS or time.monotonic() - started > BATCH_SECONDS:
            yield batch
            batch, started = [], time.monotonic()
    if batch:
        yield batch
