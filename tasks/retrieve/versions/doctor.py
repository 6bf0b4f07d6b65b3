"""The doctor finds what a crash or a bad disk left below a root, and repairs what can be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import polars as pl

from storage.errors import StorageError
from storage.parquet import read_columns
from storage.partitions import PartitionedTable
from storage.root import Root
from storage.served import PUBLISHED, SERVED
from storage.state import documents_table, edges_table, nodes_table, read_sources, write_source
from tasks.crawl.backfill import recover_seen
from tasks.retrieve.versions.doctor_served import Damage, examine_served

# A partition of these can be made anew from what lies before it, once what says it is done is gone too.
_MADE_BY = {
    "documents": "state/refined", "state/folded": "state/refined", "state/refined": "state/refined",
    "nodes": "state/parsed", "edges": "state/parsed", "state/parsed": "state/parsed",
}  # fmt: skip
# These are caches and plans, and what crawls need not look at again: nothing is known by them alone.
_SPARE = (
    "vectors/", "states/", "state/vectors/", "state/signatures/", "state/near/", "state/plans/",
    "state/staged/", "state/sorted/", "state/listed/", "state/repositories/", "state/looks/",
)  # fmt: skip
# No run gets past these, and no run can make them anew.
_IN_THE_WAY = ("state/aliases/", "reports/")
_NOT_OURS = ("models/", "lance/", "prefect/")


def examine(root: Root) -> list[Damage]:
    """Look at every file and at what is served; mend what can be, and return what was found, in order.

    Files of unfinished writes are removed. Current tables that cannot be read, or that hold a row twice, are
    removed with the records that say they were made: the next run makes them anew. What was seen is put
    together again out of raw snapshots. Where the served version cannot be read, the newest published one
    that can is served; where none can, the index goes, for the next run to build it. What is nowhere else is
    told, and left as it is (raw snapshots) or set aside where it stands in every run's way (aliases).

    Args:
        root: Where it lies; the caller holds its writer lock.
    """
    return [*_unfinished(root), *_records(root), *_files(root), *_doubled(root), *examine_served(root)]


def _unfinished(root: Root) -> Iterator[Damage]:
    found = root.unfinished()
    root.delete_unfinished()
    yield from (Damage("a write that was never finished", f, "removed", mended=True) for f in found)


def _records(root: Root) -> Iterator[Damage]:
    """Remove notes between runs that cannot be read; `examine_served` looks at what is published."""
    for file in root.files("state", ".json"):
        if file == SERVED or file.startswith(f"{PUBLISHED}/"):
            continue
        try:
            root.read_json(file)
        except (StorageError, UnicodeDecodeError) as error:
            root.delete(file)
            yield Damage(str(error), file, "removed: the next run notes it anew", mended=True)


def _files(root: Root) -> Iterator[Damage]:
    for file in root.files("", ".parquet"):
        if not file.startswith(_NOT_OURS) and root.exists(file) and (why := _damage(root, file)):
            yield _mend(root, file, why)


def _damage(root: Root, file: str) -> str | None:
    try:
        read_columns(root, file, None)
    except StorageError as error:
        return str(error)
    return None


def _mend(root: Root, file: str, why: str) -> Damage:
    below = file.rpartition("backfill/")[2].partition("/")[2] if file.startswith("backfill/") else file
    base, folder = file.removesuffix(below), str(PurePosixPath(below).parent)
    if below.startswith(_SPARE):
        root.delete(file)
        return Damage(why, file, "removed: it is worked out anew when needed", mended=True)
    if folder in _MADE_BY:
        _remove_made(root, base, folder, PurePosixPath(below).name)
        return Damage(why, file, "removed: the next run makes it anew", mended=True)
    if folder == "state/seen":
        return Damage(why, file, _seen_again(root, base, file), mended=True)
    if below.startswith(_IN_THE_WAY):
        root.write(f"{file}.damaged", root.read(file))
        root.delete(file)
        done = f"set aside as {file}.damaged, so that runs go on: put a copy of it back, or delete it"
        return Damage(why, file, done, mended=False)
    return Damage(why, file, "left: it is nowhere else; put a copy of it back, or delete it", mended=False)


def _seen_again(root: Root, base: str, file: str) -> str:
    if base:  # a backfill puts all of it together at its start
        root.delete(file)
        return "removed: the next backfill of that day makes it anew"
    count = recover_seen(root, file)
    for spec, record in read_sources(root).items():
        write_source(root, spec, {**record, "version": None})
    return f"made anew of raw snapshots, {count} rows; the next run reads every source to its end"


def _remove_made(root: Root, base: str, folder: str, name: str) -> None:
    # The record first: without it the rest is made anew, without the rest it would be believed.
    root.delete(f"{base}{_MADE_BY[folder]}/{name}")
    root.delete(f"{base}{folder}/{name}")


def _doubled(root: Root) -> Iterator[Damage]:
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
                yield Damage(found, file, "removed: the next run makes it anew", mended=True)


def _repeated(root: Root, file: str, key: list[str]) -> int:
    rows: pl.DataFrame = read_columns(root, file, key)
    return rows.height - rows.n_unique()
