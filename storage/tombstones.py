"""Tombstones: what must never come back, by id and by hash; they hold no text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from storage.partitions import PartitionedTable
from storage.root import Root
from storage.schemas import TIME

FOLDER = "state/forgotten"
# A row an id and text. `key` is the case-folded `doc_id`; `target` the key of what was asked to be forgotten;
# `copy` tells a document that went because it held the same text; `purged_at` is null until every file and
# table has been cleaned of it.
FORGOTTEN = pl.Schema({
    "key": pl.String(), "doc_id": pl.String(), "scope": pl.String(), "target": pl.String(),
    "copy": pl.Boolean(), "raw_hash": pl.String(), "body_hash": pl.String(), "since": TIME, "purged_at": TIME,
})  # fmt: skip
_FOLDED = ("document", "repository")
_IDENTITY = ["key", "scope", "raw_hash", "body_hash"]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One id and one text of it."""

    doc_id: str  # as it was written; of scope `repository` every id below it too
    scope: str  # `document`, `repository`, `trajectory` or `learned` (a skill out of trajectories)
    target: str  # what was asked to be forgotten
    copy: bool = False  # whether it went for holding a forgotten text
    raw_hash: str | None = None  # SHA-256 of the bytes fetched, under any id; None: none
    body_hash: str | None = None  # that of the refined body


class Forgotten:
    """What has been forgotten, the table of tombstones held in memory: asking costs no reading."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        self._documents, self._repositories = (set(rows.filter(scope=scope)["key"]) for scope in _FOLDED)
        self._raw = set(rows["raw_hash"].drop_nulls())
        self._bodies = set(rows["body_hash"].drop_nulls())

    @classmethod
    def load(cls, root: Root) -> Forgotten:
        """Read the tombstones of a root."""
        return cls(forgotten_table(root).read())

    @classmethod
    def none(cls) -> Forgotten:
        """Return no tombstones."""
        return cls(pl.DataFrame(schema=FORGOTTEN))

    def __bool__(self) -> bool:
        return self.rows.height > 0

    def covers(self, doc_id: str, raw_hash: str | None = None, body_hash: str | None = None) -> bool:
        """Tell whether a document has been forgotten: by its id, a repository above it, or its text."""
        if not self:
            return False
        known = raw_hash in self._raw or body_hash in self._bodies
        return known or doc_id.casefold() in self._documents or self.covers_repository(doc_id)

    def covers_repository(self, name: str) -> bool:
        """Tell whether a repository has been forgotten as a whole, or the one that an id lies in."""
        if not self._repositories:
            return False
        parts = name.casefold().split("/")
        return any("/".join(parts[:n]) in self._repositories for n in range(1, len(parts) + 1))

    def named(self, scope: str) -> set[str]:
        """Return the ids of a scope that have been forgotten, as they were written."""
        return set(self.rows.filter(scope=scope)["doc_id"])

    def bodies(self, scope: str) -> set[str]:
        """Return the body hashes of a scope."""
        return set(self.rows.filter(scope=scope)["body_hash"].drop_nulls())

    def of(self, target: str) -> pl.DataFrame:
        """Return the tombstones that one request made."""
        return self.rows.filter(target=target.casefold())


def forgotten_table(root: Root) -> PartitionedTable:
    """Return the table of tombstones."""
    return PartitionedTable(root, FOLDER, FORGOTTEN, key="key", listed=True, unique=_IDENTITY)


def add_tombstones(root: Root, tombstones: Collection[Tombstone], now: datetime) -> Forgotten:
    """Write tombstones that are not there yet, and return all; one that is there stays as it is."""
    table = forgotten_table(root)
    rows = pl.DataFrame([_row(t, now) for t in tombstones], schema=FORGOTTEN, orient="row")
    table.upsert(rows.join(table.read(), on=_IDENTITY, how="anti", nulls_equal=True))
    return Forgotten.load(root)


def mark_purged(root: Root, now: datetime) -> None:
    """Note that every file and table is clean of all that is forgotten."""
    table = forgotten_table(root)
    table.upsert(table.read().filter(pl.col("purged_at").is_null()).with_columns(purged_at=pl.lit(now)))


def _row(stone: Tombstone, now: datetime) -> tuple[object, ...]:
    target = stone.target.casefold()
    # Ids of documents are compared case-folded, those of runs and of what was learned of them as written.
    key = stone.doc_id.casefold() if stone.scope in _FOLDED else f"{stone.scope}:{stone.doc_id}"
    hashes = (stone.raw_hash, stone.body_hash)
    return (key, stone.doc_id, stone.scope, target, stone.copy, *hashes, now, None)
