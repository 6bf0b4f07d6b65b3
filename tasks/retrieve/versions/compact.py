"""Compacts the served tables and removes files that no published version needs."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from storage.lance import INDUCED, KEYS, MARGIN, NODES, SKILLS, TableWriter, connect, open_at, size_of
from storage.root import Root
from storage.served import published_versions, require_served
from tasks.retrieve.index.build import INDEXED, Built, nodes_base
from tasks.retrieve.index.gate import Check
from tasks.retrieve.versions.retention import prune_tables

if TYPE_CHECKING:  # its import takes longer than a query
    import lancedb


@dataclass(frozen=True, slots=True)
class Compacted:
    """The rows, data files and bytes of one table, as served and as compacted."""

    table: str
    rows: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact_tables(root: Root) -> tuple[Built, list[Compacted]]:
    """Merge the small files of the served tables into new versions beside them; the served ones stay.

    Return the compacted versions (the served ones, not `changed`, if there was nothing to merge), and the
    sizes of each table.

    Raises:
        NotPublished: Nothing is served.
        StorageError: The served version cannot be opened.
    """
    served, db = require_served(root), connect(root)
    found, changed = [], False
    versions = served.tables()
    rows: Counter[str] = Counter()
    for name, base in served.tables().items():
        before = open_at(db, name, base)
        rows[name], (size, files) = before.count_rows(), size_of(before)
        writer = TableWriter(db, name, before.schema, base)
        version = writer.finish(INDEXED[name], merge=True)
        size_after, files_after = size_of(writer.table)
        found.append(Compacted(name, rows[name], files, files_after, size, size_after))
        if files_after < files:
            versions[name], changed = version, True
    nodes = versions.get(NODES)
    built = Built(
        versions[SKILLS], nodes, rows[SKILLS], rows[NODES], 0, changed=changed,
        nodes_base=nodes or nodes_base(db, served), induced=versions.get(INDUCED),
    )  # fmt: skip
    return built, found


def check_compacted(root: Root, built: Built) -> list[Check]:
    """Check that compacted tables hold the same rows as the served ones, and index all of them."""
    # Compaction has corrupted tables before (LanceDB's issue 3744), so every row is compared.
    served, db, checks = require_served(root), connect(root), []
    for name, base in served.tables().items():
        version = built.tables()[name]
        if version is None or version == base:
            continue
        before, after = _row_digests(open_at(db, name, base)), _row_digests(open_at(db, name, version))
        other = len(before.keys() ^ after.keys()) + sum(before[k] != after[k] for k in before.keys() & after)
        indices = open_at(db, name, version).list_indices()
        left = max((int(index.num_unindexed_rows or 0) for index in indices), default=0)
        checks += [
            Check(f"{name}.rows_that_differ", passed=other == 0, value=other, limit=0),
            Check(f"{name}.unindexed_rows", passed=left == 0, value=left, limit=0),
        ]
    return checks


def _row_digests(table: lancedb.table.Table) -> dict[str, bytes]:
    """Return a digest of each row by its id."""
    found: dict[str, bytes] = {}
    for batch in table.search().to_batches():
        column = batch.column("vector")
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        for row, vector in zip(batch.drop_columns(["vector"]).to_pylist(), vectors, strict=True):
            said = repr(row).encode("utf-8", "surrogatepass") + vector.tobytes()
            found[row[KEYS[table.name]]] = hashlib.blake2b(said, digest_size=16).digest()
    return found


def clean_tables(root: Root, margin: timedelta = MARGIN) -> None:
    """Remove table versions that refused or killed runs left, if they are older than all published ones.

    They must be older by `margin` at least.

    Raises:
        NotPublished: Nothing is served.
        StorageError: A table cannot be read.
    """
    prune_tables(root, [*published_versions(root), require_served(root)], [], margin)


def table_files(root: Root) -> int:
    """Return the number of files of all tables, of every version."""
    return len(root.files("lance"))
