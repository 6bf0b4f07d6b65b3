"""The intake of a source's items: documents go to raw parts, their state to `seen`."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime

from storage.errors import SourceError, SourceUnavailable
from storage.root import Root
from storage.schemas import DROPPED, Dropped, Listing, RawDocument, to_frame
from storage.state import append_dropped
from storage.tombstones import Forgotten
from tasks.crawl.raw_parts import RawParts
from tasks.crawl.report import SourceReport, report_of
from tasks.crawl.seen import Covers, SeenRows, Verdict, digest_of
from tasks.crawl.source.fields import without_surrogates
from tasks.crawl.source.protocol import Gone, Item, Missed, Source, Unchanged
from tasks.crawl.source.tombstones import REASON as FORGOTTEN
from tasks.crawl.source.tombstones import drop_forgotten

log = logging.getLogger(__name__)
BATCH_SECONDS = 30.0
# A checkpoint rewrites all rows of `seen`: one after so many batches would cost a fast source more than its
# documents do.
_CHECKPOINT_SECONDS = 10.0
_QUOTA = "quota"  # a reading that ends with the day's quota has not failed: it goes on the next day


class Intake:
    """Takes in the items of one source, or of the documents that `covers` accepts, and reports on them.

    Parts are written before the rows of `seen` that name them, and the source is told last: a run that dies
    in between repeats work, and loses none.
    """

    def __init__(
        self, source: Source, root: Root, run_id: str, now: datetime, covers: Covers = lambda _: True
    ) -> None:
        self._source, self._root, self._run_id = source, root, run_id
        self._seen = SeenRows(root, source.spec, now, covers)
        self._parts = RawParts(root, source.spec, run_id, now)
        self._counts: Counter[str] = Counter()  # by field of SourceReport
        self._verdicts: dict[str, Verdict] = {}  # of documents that are not written yet
        self._dropped: list[Dropped] = []
        self._forgotten = Forgotten.load(root)
        self._state = "complete"
        self._error: SourceError | SourceUnavailable | None = None
        self._batch_began = self._checkpointed = time.monotonic()

    def repeat(self, state: str, since: str) -> int:
        """Count the documents of the reading at `since` (ISO time) as unchanged, with its state."""
        self._state, unchanged = state, self._seen.meet_again(since)
        self._counts.update(listed=unchanged, unchanged=unchanged)
        return unchanged

    def read(self, limit: int | None = None) -> None:
        """Take in the source's items, up to `limit` documents; at its end, retire what it did not yield.

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
            self._retire_unmet(whole=whole)

    def break_off(self, error: SourceError | SourceUnavailable) -> None:
        """Note why the reading ended early; wanted documents that it did not reach become stale."""
        log.warning("%s", error)
        self._error = error
        self._state = "partial" if self._counts["listed"] or error.reason == _QUOTA else "failed"
        if self._source.exhaustive or self._state == "failed":
            self._seen.mark_stale()

    def close(self) -> SourceReport:
        """Write what is left to write, and return the report."""
        self._append(self._dropped)
        self._checkpoint()
        return report_of(self._source, self._state, self._counts, self._dropped, self._error)

    def _checkpoint(self) -> None:
        """Write the rows of `seen`, so that a run that dies later need not repeat them."""
        self._seen.write(self._source.unsettle)
        # Every caller has written the parts before: all that was yielded is on disk.
        self._source.settled()
        self._checkpointed = time.monotonic()

    def _take(self, items: Iterator[Item], limit: int | None) -> bool:
        """Take in up to `limit` documents; return whether the items ended before."""
        while limit is None or self._counts["listed"] < limit:
            item = next(items, None)
            if item is None:
                return True
            self._handle(item)
            if self._parts.is_full() or self._is_late():
                self._write_batch()
        return False

    def _at_end(self, items: Iterator[Item]) -> bool:
        """Return whether no document follows; after an error one may."""
        try:
            for item in items:
                if not isinstance(item, Dropped):
                    return False
                self._dropped.append(item)
        except (SourceError, SourceUnavailable):
            return False
        return True

    def _handle(self, item: Item) -> None:
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
                self._seen.mark_stale(item.doc_ids)
                for doc_id in item.doc_ids:
                    self._drop(doc_id, item.reason, item.detail)
            case Gone():
                self._gone(item)

    def _document(self, raw: RawDocument) -> None:
        verdict = self._seen.meet(raw.doc_id, digest_of(raw))
        if verdict == "met":
            detail = f"{raw.path or raw.doc_id}: the source holds this id twice, the first counts"
            self._drop(raw.doc_id, "duplicate_id", detail, lost_to=raw.doc_id)
            return
        self._counts["listed"] += 1
        if verdict in ("new", "changed"):
            self._verdicts[raw.doc_id] = verdict
            self._parts.add(raw)
        else:
            self._counts["new" if verdict == "returned" else verdict] += 1

    def _refuse(self, row: RawDocument | Listing, why: str) -> None:
        """Drop a row that no file can hold; a document that was there before stays, stale."""
        if isinstance(row, RawDocument):
            del self._verdicts[row.doc_id]
            self._seen.miss(row.doc_id)
        self._drop(row.doc_id if isinstance(row, RawDocument) else row.source_id, "unreadable", why)

    def _unchanged(self, doc_ids: Collection[str]) -> None:
        for doc_id in doc_ids:
            verdict = self._seen.meet(doc_id, None)
            self._counts["listed"] += verdict != "met"
            if verdict == "unknown":
                reason = FORGOTTEN if self._forgotten.covers(doc_id) else "unknown"
                self._drop(doc_id, reason, "said to be unchanged, not held")
            elif verdict != "met":
                self._counts["new" if verdict == "returned" else verdict] += 1

    def _gone(self, item: Gone) -> None:
        for doc_id in item.doc_ids:
            if self._seen.retire(doc_id):
                self._counts.update(["listed", item.reason])
                # Written at once: a backfill replays departures from this row, and the run may die.
                self._append([Dropped(doc_id, self._source.spec, item.reason, item.detail)])

    def _retire_unmet(self, *, whole: bool) -> None:
        """Retire what a source read to its end no longer holds; documents it could not read are stale."""
        there = [row for row in self._dropped if row.lost_to is None]
        ids = {row.doc_id for row in there}
        folders = tuple(f"{row.doc_id}/" for row in there if row.reason == "unreadable")
        for doc_id in self._seen.unmet():
            if doc_id in ids or doc_id.startswith(folders):
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

    def _is_late(self) -> bool:
        return time.monotonic() - self._batch_began > BATCH_SECONDS

    def _write_batch(self) -> None:
        """Write parts, and a checkpoint some seconds after the last one."""
        written = self._parts.write(list_documents=not self._source.gives_listings)
        for raw, part in written.placed:
            self._seen.put(raw, part)
            self._counts[self._verdicts.pop(raw.doc_id)] += 1
        for row, why in written.refused:
            self._refuse(row, why)
        if time.monotonic() - self._checkpointed > _CHECKPOINT_SECONDS:
            log.info("%s: %d documents looked at", self._source.spec, self._counts["listed"])
            self._checkpoint()
        self._batch_began = time.monotonic()
