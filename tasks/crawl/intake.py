"""The intake of one source: writes raw parts, and updates the rows of `seen`."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import polars as pl

from storage.errors import SourceError, SourceUnavailable
from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import (
    DROPPED,
    LISTINGS,
    RAW_DOCUMENTS,
    SCHEMA_VERSION,
    Dropped,
    Listing,
    RawDocument,
    to_frame,
)
from storage.state import SEEN, append_dropped, seen_table
from storage.tombstones import Forgotten
from tasks.crawl.source.protocol import Gone, Item, Missed, Source, Unchanged
from tasks.crawl.source.tombstones import REASON as FORGOTTEN
from tasks.crawl.source.tombstones import drop_forgotten

log = logging.getLogger(__name__)
BATCH_DOCUMENTS = 100
BATCH_BYTES = 16_000_000  # of what a part's documents hold: memory is bounded whatever they are
BATCH_SECONDS = 30.0
_PARTS_PER_CHECKPOINT = 10


@dataclass(slots=True)
class SourceReport:
    """What a night brought from one source.

    `state` is `complete` (read to its end), `limited` (as far as --limit goes), `partial` (it broke off, or
    the day's quota ended) or `failed` (nothing could be read); `listed` counts what was looked at; `failed`
    counts reasons, of documents and of the source itself; `requests` and `quota_left` are of the network.
    """

    source: str
    state: str = "complete"
    listed: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    retired: int = 0
    withdrawn: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    quota_left: int | None = None
    message: str | None = None


def digest_of(raw: RawDocument) -> str:
    """Return the digest that tells a changed document: its bytes, its bundle, its place, its licence.

    A commit that leaves the document as it was is none: it does not count where the URL names it.
    """
    beside = [asdict(f) for f in raw.files or ()] + [asdict(f) for f in raw.licence_files]
    url = raw.url.replace(raw.commit, "") if raw.url and raw.commit else raw.url
    missing = [raw.content is None, raw.files is None]
    known = [raw.raw_hash, missing, beside, raw.path, url]
    parts = json.dumps(known + [raw.repo_licence] * (raw.repo_licence is not None), sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


class Intake:
    """Takes in what a source yields, and keeps a report of it.

    Args:
        source: What is read.
        root: Where raw parts and `seen` lie.
        run_id: The run that reads.
        now: When it began.
    """

    def __init__(self, source: Source, root: Root, run_id: str, now: datetime) -> None:
        self.source, self.spec = source, source.spec
        self.root, self.run_id, self.now = root, run_id, now
        self.report = SourceReport(source.spec)
        self.table = seen_table(root)
        known = self.table.read().filter(pl.col("source") == self.spec)
        self.known: dict[str, dict[str, Any]] = {row["doc_id"]: row for row in known.to_dicts()}
        self.touched: dict[str, dict[str, Any]] = {}
        self.met: set[str] = set()
        self.stale: set[str] = set()
        self.forgotten = Forgotten.load(root)
        self.dropped: list[Dropped] = []
        self.listings: list[Listing] = []
        self.place = f"date={now:%Y-%m-%d}/run={run_id}"
        self.name = f"part-{hashlib.sha256(self.spec.encode()).hexdigest()[:8]}"
        # A run's name may be used again, by a retry: parts are never rewritten.
        self.parts = {kind: self._count(kind) for kind in ("documents", "listings")}
        self.bytes, self.started, self.flushed = 0, time.monotonic(), 0
        self.buffer: list[RawDocument] = []

    def _count(self, kind: str) -> int:
        return sum(f"/{self.name}-" in f for f in self.root.files(f"raw/{kind}/{self.place}"))

    def touch_all(self, since: str) -> int:
        """Note that what the reading at `since` met (ISO time) was there again; return how many that is."""
        last = datetime.fromisoformat(since)
        # Exactly then: by a clock that has been set back, what was seen before may have been seen later.
        rows = [r for r in self.known.values() if r["retired_at"] is None and r["last_seen_at"] == last]
        self.touched = {r["doc_id"]: {**r, "last_seen_at": self.now, "stale_since": None} for r in rows}
        return len(rows)

    def mark_stale(self, doc_ids: Iterable[str] | None = None) -> None:
        """Note that these documents (None: all not met) could not be looked at; unknown is never deleted."""
        for doc_id in self.known if doc_ids is None else doc_ids:
            row = self._row(doc_id)
            if row is not None and doc_id not in self.met and row["retired_at"] is None:
                self.touched[doc_id] = {**row, "stale_since": row["stale_since"] or self.now}

    def read(self, limit: int | None) -> None:
        """Take in the source's items in batches; retire what is gone where it was read to its end."""
        items = iter(self.source.read())
        try:
            ended = self._take(items, limit) or self._at_end(items)
        finally:
            # What has been yielded is kept, also where the source breaks off.
            self._flush()
            self.report.failed = dict(Counter(d.reason for d in self.dropped))
        # What was left out was asked for too.
        fewer = limit is None or self.report.listed + len(self.dropped) < limit
        whole = limit is None or (ended and (self.source.exhaustive or fewer))
        self.report.state = "complete" if whole else "limited"
        if self.source.exhaustive:
            self._depart(whole=whole)

    def close(self) -> None:
        """Write what is left to write; then the source may forget it."""
        append_dropped(self.root, self.run_id, to_frame(self.dropped, DROPPED, run_id=self.run_id))
        self.checkpoint()
        usage = self.source.usage()
        self.report.requests, self.report.quota_left = usage.requests, usage.quota_left

    def checkpoint(self) -> None:
        """Write what is known now, so that a run that dies later need not look at it again."""
        if self.touched:
            self.source.unsettle([d for d, row in self.touched.items() if _differs(self.known.get(d), row)])
            ids = list(self.touched)
            others = self.table.read().filter(pl.col("doc_id").is_in(ids), pl.col("source") != self.spec)
            rows = pl.DataFrame(list(self.touched.values()), schema=SEEN)
            self.table.replace(ids, pl.concat([others, rows]))
            self.known.update(self.touched)
            self.touched = {}
        if not self.buffer and not self.listings:
            self.source.settled()

    def _take(self, items: Iterator[Item], limit: int | None) -> bool:
        """Take in items until there are none (True), or as many documents as were asked for."""
        while limit is None or self.report.listed < limit:
            item = next(items, None)
            if item is None:
                return True
            self._handle(item)
            full = len(self.buffer) >= BATCH_DOCUMENTS or self.bytes >= BATCH_BYTES
            if full or len(self.listings) >= BATCH_DOCUMENTS or self._waited():
                self._flush()
        return False

    def _waited(self) -> bool:
        return time.monotonic() - self.started > BATCH_SECONDS

    def _at_end(self, items: Iterator[Item]) -> bool:
        """Tell whether no document follows; where that cannot be told, all that was asked for was read."""
        try:
            for item in items:
                if not isinstance(item, Dropped):
                    return False
                self.dropped.append(item)
        except (SourceError, SourceUnavailable):
            return False
        return True

    def _handle(self, item: Item) -> None:
        if isinstance(item, RawDocument | Listing) and (kept_out := drop_forgotten(self.forgotten, item)):
            self.report.listed += isinstance(item, RawDocument)
            self.dropped.append(kept_out)
            return
        match item:
            case RawDocument():
                self._document(item)
            case Dropped():
                self.dropped.append(item)
            case Listing():
                self.listings.append(item)
            case Unchanged():
                self._unchanged(item.doc_ids)
            case Missed():
                self.stale.update(item.doc_ids)
                self.report.listed += len(item.doc_ids)
                self.mark_stale(item.doc_ids)
                self.dropped += [Dropped(d, self.spec, item.reason, item.detail) for d in item.doc_ids]
            case Gone():
                self._gone(item)

    def _row(self, doc_id: str) -> dict[str, Any] | None:
        return self.touched.get(doc_id) or self.known.get(doc_id)

    def _document(self, raw: RawDocument) -> None:
        """Keep what is new or changed, note what is as it was; an id counts once."""
        if raw.doc_id in self.met:
            detail = f"{raw.path or raw.doc_id}: the source holds this id twice, the first counts"
            twice = Dropped(raw.doc_id, self.spec, "duplicate_id", detail, lost_to=raw.doc_id)
            self.dropped.append(twice)
            return
        self.report.listed += 1
        self.met.add(raw.doc_id)
        known, digest = self._row(raw.doc_id), digest_of(raw)
        is_new = known is None or known["retired_at"] is not None
        as_it_was = known is not None and known["digest"] == digest
        self.report.new += is_new
        self.report.changed += not (is_new or as_it_was)
        self.report.unchanged += as_it_was and not is_new
        if known is not None and as_it_was:
            self._touch(raw.doc_id, digest, known["raw_part"], known["first_seen_at"])
        else:
            self.buffer.append(raw)
            self.bytes += len(raw.content or b"") + sum(len(f.text) for f in raw.licence_files)

    def _unchanged(self, doc_ids: Collection[str]) -> None:
        for doc_id in (d for d in doc_ids if d not in self.met):
            row = self._row(doc_id)
            self.report.listed += 1
            if row is None:
                reason = FORGOTTEN if self.forgotten.covers(doc_id) else "unknown"
                self.dropped.append(Dropped(doc_id, self.spec, reason, "said to be unchanged, not held"))
                continue
            self.met.add(doc_id)
            self.report.new += row["retired_at"] is not None
            self.report.unchanged += row["retired_at"] is None
            self._touch(doc_id, row["digest"], row["raw_part"], row["first_seen_at"])

    def _gone(self, item: Gone) -> None:
        for doc_id in item.doc_ids:
            row = self._row(doc_id)
            if row is None or row["retired_at"] is not None or doc_id in self.met:
                continue
            self.touched[doc_id] = {**row, "retired_at": self.now}
            self.stale.add(doc_id)
            self.report.listed += 1
            self.report.retired += item.reason == "retired"
            self.report.withdrawn += item.reason == "withdrawn"
            departed = Dropped(doc_id, self.spec, item.reason, item.detail)
            append_dropped(self.root, self.run_id, to_frame([departed], DROPPED, run_id=self.run_id))

    def _depart(self, *, whole: bool) -> None:
        """Retire what a source, read to its end, does not hold any more; what it could not show is stale."""
        for doc_id in list(self.known):
            row = self._row(doc_id)
            if row is None or doc_id in self.met or doc_id in self.stale or row["retired_at"] is not None:
                continue
            if self._unreadable(doc_id):
                self.mark_stale([doc_id])
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

    def _touch(self, doc_id: str, digest: str, part: str, first_seen_at: datetime) -> None:
        self.touched[doc_id] = {
            "doc_id": doc_id, "source": self.spec, "digest": digest, "raw_part": part,
            "first_seen_at": first_seen_at, "last_seen_at": self.now, "stale_since": None, "retired_at": None,
        }  # fmt: skip

    def _flush(self) -> None:
        """Write parts of documents and of listings, never rewritten; now and then all that is known."""
        if self.buffer:
            self._write_documents()
        if self.listings:
            self._write("listings", to_frame(self.listings, LISTINGS, seen_at=self.now, **self._constant()))
            self.listings = []
        self.flushed += 1
        if self.flushed % _PARTS_PER_CHECKPOINT == 0 or self._waited():
            log.info("%s: %d documents looked at", self.spec, self.report.listed)
            self.checkpoint()
        self.bytes, self.started = 0, time.monotonic()

    def _constant(self) -> dict[str, object]:
        return {"run_id": self.run_id, "schema_version": SCHEMA_VERSION}

    def _write_documents(self) -> None:
        frame = to_frame(self.buffer, RAW_DOCUMENTS, fetched_at=self.now, **self._constant())
        place = self._write("documents", frame)
        if not self.source.gives_listings:
            self._write("listings", _listed(frame))
        for raw in self.buffer:
            first = (self._row(raw.doc_id) or {}).get("first_seen_at", self.now)
            self._touch(raw.doc_id, digest_of(raw), place, first)
        self.buffer = []

    def _write(self, kind: str, frame: pl.DataFrame) -> str:
        place = f"raw/{kind}/{self.place}/{self.name}-{self.parts[kind]:05d}.parquet"
        write_frame(self.root, place, frame, RAW_DOCUMENTS if kind == "documents" else LISTINGS)
        self.parts[kind] += 1
        return place


def _differs(before: dict[str, Any] | None, row: dict[str, Any]) -> bool:
    return before is None or any(before[name] != row[name] for name in ("digest", "retired_at"))


def _listed(documents: pl.DataFrame) -> pl.DataFrame:
    """Return documents as rows of a list, for a source that gives none."""
    return documents.select(
        "source", "kind", "author", "url", "category", "tags", "stars", "repo_id", "run_id", "schema_version",
        source_id="doc_id", name=pl.col("doc_id").str.split("/").list.last(),
        description=pl.lit(None, pl.String), updated_at=pl.lit(None, LISTINGS["updated_at"]),
        seen_at="fetched_at",
    ).select(LISTINGS.names())  # fmt: skip
