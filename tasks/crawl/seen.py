"""Changes the rows of `seen`, which hold what is known of the documents of one source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import polars as pl

from storage.root import Root
from storage.schemas import RawDocument
from storage.state import SEEN, seen_table


def digest_of(raw: RawDocument) -> str:
    """Return the digest by which a changed document is recognised: of its bytes, bundle, path and licence.

    A commit that leaves the document as it was does not change the digest, even where the URL names it.
    """
    beside = [asdict(f) for f in raw.files or ()] + [asdict(f) for f in raw.licence_files]
    url = raw.url.replace(raw.commit, "") if raw.url and raw.commit else raw.url
    missing = [raw.content is None, raw.files is None]
    known = [raw.raw_hash, missing, beside, raw.path, url]
    parts = json.dumps(known + [raw.repo_licence] * (raw.repo_licence is not None), sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


class SeenRows:
    """The rows of one source, and the changes to them that are not written yet.

    A document is held if it has a row and is not retired.
    """

    def __init__(self, root: Root, spec: str, now: datetime) -> None:
        self._table, self._spec, self._now = seen_table(root), spec, now
        known = self._table.read().filter(pl.col("source") == spec)
        self._known: dict[str, dict[str, Any]] = {row["doc_id"]: row for row in known.to_dicts()}
        self._changes: dict[str, dict[str, Any]] = {}
        self._met: set[str] = set()
        self._explained: set[str] = set()  # not met, but known to be missed or gone

    def restrict(self, covers: Callable[[str], bool]) -> None:
        """Ignore the rows of all other documents: a reading of a part tells nothing about them."""
        self._known = {doc_id: row for doc_id, row in self._known.items() if covers(doc_id)}

    def ids(self) -> list[str]:
        """Return the ids that have a row."""
        return list(self._known)

    def is_met(self, doc_id: str) -> bool:
        """Tell whether this reading has met a document."""
        return doc_id in self._met

    def meet(self, doc_id: str) -> None:
        """Note that this reading has met a document."""
        self._met.add(doc_id)

    def has_row(self, doc_id: str) -> bool:
        """Tell whether a document was ever seen."""
        return self._row(doc_id) is not None

    def is_held(self, doc_id: str) -> bool:
        """Tell whether a document has a row and is not retired."""
        row = self._row(doc_id)
        return row is not None and row["retired_at"] is None

    def has_digest(self, doc_id: str, digest: str) -> bool:
        """Tell whether a document's row has this digest."""
        row = self._row(doc_id)
        return row is not None and row["digest"] == digest

    def unmet(self) -> list[str]:
        """Return the held documents that were neither met nor reported as missed or gone."""
        explained = self._met | self._explained
        return [doc_id for doc_id in self._known if doc_id not in explained and self.is_held(doc_id)]

    def touch(self, doc_id: str) -> None:
        """Note that a document that has a row was seen now, unchanged."""
        row = self._changes.get(doc_id) or self._known[doc_id]
        seen_now = {"last_seen_at": self._now, "stale_since": None, "retired_at": None}
        self._changes[doc_id] = {**row, **seen_now}

    def touch_all(self, since: str) -> int:
        """Note that the documents met by the reading at `since` (ISO time) were seen now; return how many."""
        last = datetime.fromisoformat(since)
        # Equal, not later: after a clock was set back, older readings may have later times.
        met = [d for d, row in self._known.items() if self.is_held(d) and row["last_seen_at"] == last]
        for doc_id in met:
            self.touch(doc_id)
        return len(met)

    def put(self, raw: RawDocument, part: str) -> None:
        """Note that a new or changed document was written to a raw part."""
        first = (self._row(raw.doc_id) or {}).get("first_seen_at", self._now)
        self._changes[raw.doc_id] = {
            "doc_id": raw.doc_id, "source": self._spec, "digest": digest_of(raw), "raw_part": part,
            "first_seen_at": first, "last_seen_at": self._now, "stale_since": None, "retired_at": None,
        }  # fmt: skip

    def mark_stale(self, doc_ids: Iterable[str]) -> None:
        """Note that these documents could not be looked at: unknown is never deleted."""
        for doc_id in doc_ids:
            self._explained.add(doc_id)
            row = self._row(doc_id)
            if row is not None and self.is_held(doc_id) and doc_id not in self._met:
                self._changes[doc_id] = {**row, "stale_since": row["stale_since"] or self._now}

    def retire(self, doc_id: str) -> None:
        """Note that a held document has left the source."""
        self._explained.add(doc_id)
        self._changes[doc_id] = {**(self._row(doc_id) or {}), "retired_at": self._now}

    def has_changes(self) -> bool:
        """Tell whether there is anything to write."""
        return bool(self._changes)

    def altered(self) -> list[str]:
        """Return the ids with unwritten changes of their digest or their retirement."""
        return [doc_id for doc_id, row in self._changes.items() if _differs(self._known.get(doc_id), row)]

    def write(self) -> None:
        """Write the changes; rows of the same documents from other sources stay as they are."""
        ids = list(self._changes)
        others = self._table.read().filter(pl.col("doc_id").is_in(ids), pl.col("source") != self._spec)
        rows = pl.DataFrame(list(self._changes.values()), schema=SEEN)
        self._table.replace(ids, pl.concat([others, rows]))
        self._known.update(self._changes)
        self._changes = {}

    def _row(self, doc_id: str) -> dict[str, Any] | None:
        return self._changes.get(doc_id) or self._known.get(doc_id)


def _differs(before: dict[str, Any] | None, row: dict[str, Any]) -> bool:
    return before is None or any(before[name] != row[name] for name in ("digest", "retired_at"))
