"""Writes raw parts: batches of documents and listings as they were fetched, each in a file of its own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import polars as pl

from storage.parquet import write_frame
from storage.partitions import list_file
from storage.root import Root
from storage.schemas import (
    LISTINGS,
    RAW_DOCUMENTS,
    SCHEMA_VERSION,
    BundledFile,
    FileContent,
    Finding,
    LicenceFile,
    Listing,
    RawDocument,
    to_frame,
)
from tasks.crawl.source.credentials import without_credentials

_Row = TypeVar("_Row", RawDocument, Listing)
# What Polars raises for a number beyond 64 bits, half of a surrogate pair, or a value of another type.
_NOT_STORABLE = (pl.exceptions.PolarsError, ArithmeticError, TypeError, ValueError)
# Bytes are storable: megabytes of them need not be tried.
_TRIED = pl.Schema({name: kind for name, kind in RAW_DOCUMENTS.items() if name != "contents"})
BATCH_DOCUMENTS = 100
BATCH_BYTES = 16_000_000  # texts and bundled files of a part's documents: bounds the memory


def raw_bytes(raw: RawDocument) -> int:
    """Return the bytes of a document's texts and files."""
    texts = len(raw.content or b"") + sum(len(licence.text) for licence in raw.licence_files)
    return texts + sum(len(file.content) for file in raw.contents)


# The documents of a batch, each with its part, and the rows that no file can hold, each with why.
Written: TypeAlias = tuple[list[tuple[RawDocument, str]], list[tuple[RawDocument | Listing, str]]]


class RawParts:
    """Buffers documents and listings of one source until they are written as parts."""

    def __init__(self, root: Root, spec: str, run_id: str, now: datetime) -> None:
        self._root, self._run_id, self._now = root, run_id, now
        self._folder = f"date={now:%Y-%m-%d}/run={run_id}"
        self._name = f"part-{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
        # A retry may use a run's id again: its numbers go on, since parts are never rewritten.
        self._written = {kind: self._count(kind) for kind in ("documents", "listings")}
        self._documents: list[RawDocument] = []
        self._listings: list[Listing] = []
        self._bytes = 0

    def add(self, item: RawDocument | Listing) -> None:
        """Buffer a document or a listing."""
        if isinstance(item, Listing):
            self._listings.append(item)
        else:
            self._documents.append(item)
            self._bytes += raw_bytes(item)

    def is_full(self) -> bool:
        """Return whether the buffer has reached the size of a part."""
        return max(len(self._documents), len(self._listings)) >= BATCH_DOCUMENTS or self._bytes >= BATCH_BYTES

    def write(self, *, list_documents: bool) -> Written:
        """Write the buffer, documents as listings too if asked."""
        placed, refused = list[tuple[RawDocument, str]](), list[tuple[RawDocument | Listing, str]]()
        constant = {"run_id": self._run_id, "schema_version": SCHEMA_VERSION}
        documents = _storable(self._documents, _TRIED, refused)
        if documents:
            frame = to_frame(documents, RAW_DOCUMENTS, fetched_at=self._now, **constant)
            part = self._write("documents", frame, RAW_DOCUMENTS)
            placed = [(raw, part) for raw in documents]
            if list_documents:
                self._write("listings", _listings_of(frame), LISTINGS)
        listings = _storable(self._listings, LISTINGS, refused)
        if listings:
            frame = to_frame(listings, LISTINGS, seen_at=self._now, **constant)
            self._write("listings", frame, LISTINGS)
        self._documents, self._listings, self._bytes = [], [], 0
        return placed, refused

    def _count(self, kind: str) -> int:
        return sum(f"/{self._name}-" in f for f in self._root.files(f"raw/{kind}/{self._folder}"))

    def _write(self, kind: str, frame: pl.DataFrame, schema: pl.Schema) -> str:
        part = f"raw/{kind}/{self._folder}/{self._name}-{self._written[kind]:05d}.parquet"
        list_file(self._root, part, frame.height, write_frame(self._root, part, frame, schema))
        self._written[kind] += 1
        return part


def _storable(rows: list[_Row], schema: pl.Schema, refused: list[tuple[Any, str]]) -> list[_Row]:
    """Return the rows that a file can hold; add the others, with what is wrong, to `refused`."""
    try:
        to_frame(rows, schema)
    except _NOT_STORABLE as error:
        if len(rows) == 1:
            refused.append((rows[0], " ".join(f"{type(error).__name__}: {error}".split())[:300]))
            return []
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        return [row for half in halves for row in _storable(half, schema, refused)]
    return rows


def _listings_of(documents: pl.DataFrame) -> pl.DataFrame:
    return documents.select(
        "source", "kind", "author", "url", "category", "tags", "stars", "repo_id", "run_id", "schema_version",
        source_id="doc_id", name=pl.col("doc_id").str.split("/").list.last(),
        description=pl.lit(None, pl.String), updated_at=pl.lit(None, LISTINGS["updated_at"]),
        seen_at="fetched_at",
    ).select(LISTINGS.names())  # fmt: skip


_BARE = ("fetched_at", "run_id", "schema_version")


def raw_document(row: dict[str, Any]) -> RawDocument:
    """Return a row of a raw part as the document that it holds; credentials in its fields are redacted.

    Its id stays: parts that older versions wrote hold ids that are in use.
    """
    given = {key: value for key, value in row.items() if key not in _BARE} | {
        "tags": tuple(row["tags"] or ()),
        "findings": tuple(Finding(**f) for f in row["findings"] or ()),
        "licence_files": tuple(LicenceFile(**f) for f in row["licence_files"] or ()),
        "contents": tuple(FileContent(**f) for f in row["contents"] or ()),
        "files": None if row["files"] is None else tuple(BundledFile(**f) for f in row["files"]),
    }
    return replace(without_credentials(RawDocument(**given)), doc_id=row["doc_id"])
