"""Finds what a crash or a bad disk left below a root, and mends what can be made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import polars as pl

from storage.errors import StorageError
from storage.partitions import PartitionedTable
from storage.purge import read_columns
from storage.root import Root
from storage.served import (
    PUBLISHED,
    SERVED,
    Served,
    published_versions,
    read_published,
    read_served,
    write_served,
)
from storage.state import documents_table, edges_table, nodes_table
from tasks.retrieve.routing_store import damaged_routing, drop_routing
from tasks.retrieve.sound import require_sound

# A partition of these can be made anew from what lies before it, once what says it is done is gone too.
_MADE_BY = {
    "documents": "state/refined", "state/folded": "state/refined", "state/refined": "state/refined",
    "nodes": "state/parsed", "edges": "state/parsed", "state/parsed": "state/parsed",
}  # fmt: skip
# These are caches and plans: nothing is known by them alone.
_SPARE = ("vectors/", "state/vectors/", "state/signatures/", "state/near/", "state/plans/", "state/staged/")
_NOT_OURS = ("models/", "lance/", "prefect/")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, where (relative to the root), what was done, and whether that mended it."""

    found: str
    where: str
    done: str
    mended: bool


def examine(root: Root) -> list[Finding]:
    """Look at every file and at what is served; mend what can be, and return what was found, in order.

    Files of unfinished writes are removed. Current tables that cannot be read, or that hold a row twice, are
    removed with the records that say they were made: the next run makes them anew. Where the served version
    cannot be read, the newest published one that can is served. What is nowhere else (raw snapshots, aliases,
    what was seen) is left as it is, and told.

    Args:
        root: Where it lies; the caller holds its writer lock.
    """
    return [*_unfinished(root), *_files(root), *_doubled(root), *_served(root)]


def _unfinished(root: Root) -> Iterator[Finding]:
    found = root.unfinished()
    root.delete_unfinished()
    yield from (Finding("a write that was never finished", f, "removed", mended=True) for f in found)


def _files(root: Root) -> Iterator[Finding]:
    for file in root.files("", ".parquet"):
        if not file.startswith(_NOT_OURS) and root.exists(file) and (why := _damage(root, file)):
            yield _mend(root, file, why)


def _damage(root: Root, file: str) -> str | None:
    try:
        read_columns(root, file, None)
    except StorageError as error:
        return str(error)
    return None


def _mend(root: Root, file: str, why: str) -> Finding:
    below = file.rpartition("backfill/")[2].partition("/")[2] if file.startswith("backfill/") else file
    base, folder = file.removesuffix(below), str(PurePosixPath(below).parent)
    if below.startswith(_SPARE):
        root.delete(file)
        return Finding(why, file, "removed: it is worked out anew when needed", mended=True)
    if folder in _MADE_BY:
        _remove_made(root, base, folder, PurePosixPath(below).name)
        return Finding(why, file, "removed: the next run makes it anew", mended=True)
    return Finding(why, file, "left: it is nowhere else; put a copy of it back, or delete it", mended=False)


def _remove_made(root: Root, base: str, folder: str, name: str) -> None:
    # The record first: without it the rest is made anew, without the rest it would be believed.
    root.delete(f"{base}{_MADE_BY[folder]}/{name}")
    root.delete(f"{base}{folder}/{name}")


def _doubled(root: Root) -> Iterator[Finding]:
    tables: tuple[tuple[Callable[[Root], PartitionedTable], list[str]], ...] = (
        (documents_table, ["doc_id"]),
        (nodes_table, ["node_id"]),
        (edges_table, ["src_id", "dst_id", "edge_type"]),
    )
    for table_of, key in tables:
        table = table_of(root)
        for file in root.files(table.folder, ".parquet"):
            twice = _repeated(root, file, key)
            if twice:
                _remove_made(root, "", table.folder, PurePosixPath(file).name)
                found = f"{twice} rows stand there twice, by {', '.join(key)}"
                yield Finding(found, file, "removed: the next run makes it anew", mended=True)


def _repeated(root: Root, file: str, key: list[str]) -> int:
    rows: pl.DataFrame = read_columns(root, file, key)
    return rows.height - rows.n_unique()


def _served(root: Root) -> Iterator[Finding]:
    versions, damaged = _published(root)
    yield from damaged
    try:
        served, why = read_served(root), None
    except StorageError as error:
        served, why = None, str(error)
    if served is None and why is None and not versions:
        return
    if served is not None:
        why = _unsound(root, served)
        if why is None:
            yield from _routing(root, served)
            return
    yield _serve_another(root, why or f"{SERVED} is missing", [v for v in versions if v != served])


def _routing(root: Root, served: Served) -> Iterator[Finding]:
    if why := damaged_routing(root, served):
        folder = drop_routing(root, served)
        done = "removed: each process makes it for itself until the next version is published"
        yield Finding(why, folder, done, mended=True)


def _published(root: Root) -> tuple[list[Served], list[Finding]]:
    """Return the versions published, after removing records of them that cannot be read."""
    damaged = []
    for file in root.files(PUBLISHED, ".json"):
        try:
            read_published(root, file)
        except StorageError as error:
            root.delete(file)
            done = "removed: that version can be gone back to no more"
            damaged.append(Finding(str(error), file, done, mended=True))
    return published_versions(root), damaged


def _unsound(root: Root, served: Served) -> str | None:
    try:
        require_sound(root, served)
    except StorageError as error:
        return str(error)
    return None


def _serve_another(root: Root, why: str, others: list[Served]) -> Finding:
    for other in others:
        if _unsound(root, other) is None:
            write_served(root, other)
            return Finding(why, SERVED, f"{other.version} is served again", mended=True)
    left = "left: no version published can be read; delete lance/ and state/served.json, then run"
    return Finding(why, SERVED, left, mended=False)
