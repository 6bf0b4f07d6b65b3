"""Changes the rows of `seen`, which hold what is known of the documents of one source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, TypeAlias

import polars as pl

from storage.root import Root
from storage.schemas import RawDocument
from storage.state import SEEN, rename, seen_table
from tasks.crawl.claims import Claims
from tasks.crawl.source.unchanged import document_digest

Verdict: TypeAlias = Literal["new", "changed", "unchanged", "returned", "unknown", "repeated"]
Covers: TypeAlias = Callable[[str], bool]


class SeenRows:
    """The rows of one source, and the changes to them that are not written yet."""

    def __init__(self, root: Root, spec: str, now: datetime, covers: Covers, began: datetime) -> None:
        self._table, self._spec, self._now, self._began = seen_table(root), spec, now, began
        rows = self._table.read()
        self.claims = Claims(root, spec, rows)
        known = rows.filter(source=spec).to_dicts()
        self._known: dict[str, dict[str, Any]] = {row["doc_id"]: row for row in known}
        self._covers = covers
        self._changes: dict[str, dict[str, Any]] = {}
        self._met: set[str] = set()
        self._root, self._renamed = root, dict[str, str]()
        self._explained: set[str] = set()  # not met, but known to be missed or gone

    def compare(self, doc_id: str, digest: str | None) -> Verdict:
        """Compare a document that was met with its row; a `new` or `changed` one has to be `put` later.

        A digest of None stands for that of its row; without a row the document is `unknown`. `returned`: it
        was retired and is unchanged; `repeated`: it was met before in this reading.
        """
        row = self._row(doc_id)
        if doc_id in self._met:
            return "repeated"
        if row is None and digest is None:
            return "unknown"
        self._met.add(doc_id)
        if row is None or digest not in (None, row["digest"]):
            return "changed" if _is_held(row) else "new"
        self._touch(row)
        return "unchanged" if _is_held(row) else "returned"

    def repeat(self, since: str) -> int:
        """Note that the documents met by the reading at `since` (ISO time) are unchanged; return how many."""
        last = datetime.fromisoformat(since)
        # Equal, not later: after a clock was set back, older readings may have later times.
        held = [row for doc_id in self._known if _is_held(row := self._row(doc_id))]
        rows = [row for row in held if row and row["last_seen_at"] == last]
        for row in rows:
            self._touch(row)
        return len(rows)

    def put(self, raw: RawDocument, part: str) -> None:
        """Note that a new or changed document was written to a raw part."""
        first = (self._row(raw.doc_id) or {}).get("first_seen_at", self._began)
        self._touch({
            "doc_id": raw.doc_id, "source": self._spec, "digest": document_digest(raw), "raw_part": part,
            "first_seen_at": first,
        })  # fmt: skip

    def moved(self) -> Iterator[RawDocument]:
        """Yield the documents that have other ids than before, which are retired; each has to be `put`.

        The id of before is an alias, unless another publisher claims it.
        """
        held = [row for row in self._known.values() if _is_held(row)]
        for doc_id, raw in self.claims.moved(held):
            if not self.claims.others(doc_id):
                self._renamed[doc_id] = raw.doc_id
            self._changes[raw.doc_id] = {**self._known[doc_id], "doc_id": raw.doc_id}
            self.retire(doc_id)
            yield raw

    def mark_stale(self, doc_ids: Iterable[str] | None = None) -> None:
        """Note that documents (None: all covered) could not be looked at; they are never deleted for it."""
        for doc_id in filter(self._covers, self._known) if doc_ids is None else doc_ids:
            self._explained.add(doc_id)
            row = self._row(doc_id)
            if row is not None and _is_held(row) and doc_id not in self._met:
                self._changes[doc_id] = {**row, "stale_since": row["stale_since"] or self._now}

    def miss(self, doc_id: str) -> None:
        """Note that a document, though met, could not be written: what is held of it is stale."""
        self._met.discard(doc_id)
        self.mark_stale([doc_id])

    def retire(self, doc_id: str) -> bool:
        """Retire a document; return False if it was met in this reading, or not there before."""
        row = self._row(doc_id)
        if row is None or not _is_held(row) or doc_id in self._met:
            return False
        self._explained.add(doc_id)
        self._changes[doc_id] = {**row, "retired_at": self._now}
        return True

    def absent(self) -> list[str]:
        """Return the covered documents that are held and were neither met, missed nor gone."""
        explained = self._met | self._explained
        ids = [doc_id for doc_id in self._known if doc_id not in explained and self._covers(doc_id)]
        return [doc_id for doc_id in ids if _is_held(self._row(doc_id))]

    def write(self, invalidate: Callable[[list[str]], None]) -> None:
        """Call `invalidate` with the documents whose digest or retirement changes, then write the changes."""
        if not self._changes:
            return
        invalidate(
            [doc_id for doc_id, row in self._changes.items() if _differs(self._known.get(doc_id), row)]
        )
        if self._renamed:  # before the rows, which say of no document any more that it moves
            rename(self._root, self._renamed, self._now)
        self._table.upsert(pl.DataFrame(list(self._changes.values()), schema=SEEN))
        self._known.update(self._changes)
        self._changes, self._renamed = {}, {}

    def _row(self, doc_id: str) -> dict[str, Any] | None:
        return self._changes.get(doc_id) or self._known.get(doc_id)

    def _touch(self, row: dict[str, Any]) -> None:
        now = {"last_seen_at": self._now, "stale_since": None, "retired_at": None}
        self._changes[row["doc_id"]] = {**row, **now}


def _is_held(row: dict[str, Any] | None) -> bool:
    return row is not None and row["retired_at"] is None


def _differs(before: dict[str, Any] | None, row: dict[str, Any]) -> bool:
    return before is None or any(before[name] != row[name] for name in ("digest", "retired_at"))
