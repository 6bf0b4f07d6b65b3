"""Writes raw parts: batches of documents and listings as they were fetched, each in a file of its own."""

from __future__ import annotations

import hashlib
from datetime import datetime

import polars as pl

from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import LISTINGS, RAW_DOCUMENTS, SCHEMA_VERSION, Listing, RawDocument, to_frame

BATCH_DOCUMENTS = 100
BATCH_BYTES = 16_000_000  # texts of a part's documents: bounds the memory whatever their size


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
            self._bytes += len(item.content or b"") + sum(len(f.text) for f in item.licence_files)

    def is_full(self) -> bool:
        """Return whether the buffer has reached the size of a part."""
        return max(len(self._documents), len(self._listings)) >= BATCH_DOCUMENTS or self._bytes >= BATCH_BYTES

    def write(self, *, list_documents: bool) -> list[tuple[RawDocument, str]]:
        """Write the buffer, documents as listings too if asked; return each document with its part."""
        placed: list[tuple[RawDocument, str]] = []
        constant = {"run_id": self._run_id, "schema_version": SCHEMA_VERSION}
        if self._documents:
            frame = to_frame(self._documents, RAW_DOCUMENTS, fetched_at=self._now, **constant)
            part = self._write("documents", frame, RAW_DOCUMENTS)
            placed = [(raw, part) for raw in self._documents]
            if list_documents:
                self._write("listings", _listings_of(frame), LISTINGS)
        if self._listings:
            frame = to_frame(self._listings, LISTINGS, seen_at=self._now, **constant)
            self._write("listings", frame, LISTINGS)
        self._documents, self._listings, self._bytes = [], [], 0
        return placed

    def _count(self, kind: str) -> int:
        return sum(f"/{self._name}-" in f for f in self._root.files(f"raw/{kind}/{self._folder}"))

    def _write(self, kind: str, frame: pl.DataFrame, schema: pl.Schema) -> str:
        part = f"raw/{kind}/{self._folder}/{self._name}-{self._written[kind]:05d}.parquet"
        write_frame(self._root, part, frame, schema)
        self._written[kind] += 1
        return part


def _listings_of(documents: pl.DataFrame) -> pl.DataFrame:
    return documents.select(
        "source", "kind", "author", "url", "category", "tags", "stars", "repo_id", "run_id", "schema_version",
        source_id="doc_id", name=pl.col("doc_id").str.split("/").list.last(),
        description=pl.lit(None, pl.String), updated_at=pl.lit(None, LISTINGS["updated_at"]),
        seen_at="fetched_at",
    ).select(LISTINGS.names())  # fmt: skip
