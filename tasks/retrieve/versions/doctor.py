"""The doctor finds what a crash or a bad disk left below a root, and repairs what can be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import polars as pl

from storage.blobs import BlobStore, blob_file, blobs_named
from storage.errors import NewerSchema, SchemaMismatch, StorageError
from storage.lance.served import (
    LICENCES,
    PUBLISHED,
    SERVED,
    Served,
    drop_published,
    mend_tags,
    published_versions,
    read_published,
    read_served,
    require_licences,
    write_served,
)
from storage.lance.tables import INDUCED, TableAt
from storage.lance.versions import manifest_reads, table_names
from storage.parquet import read_columns
from storage.partitions import Manifest, forget_entry, missing_files
from storage.root import Root
from storage.state import (
    SCHEMAS,
    documents_table,
    edges_table,
    is_run,
    nodes_table,
    read_sources,
    refined_table,
    split_backfill,
    table_of,
    write_source,
)
from storage.tombstones import FOLDER as FORGOTTEN_FOLDER
from tasks.crawl.backfill import rebuilt_days, recover_seen
from tasks.refine.licences.policy import SERVE_POLICY, LicencePolicy
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.routing.store import FOLDER as ROUTING
from tasks.retrieve.routing.store import damaged_routing, drop_routing
from tasks.retrieve.routing.tuned import FILE as TUNED_FILE
from tasks.retrieve.routing.tuned import UNUSED, read_tuned
from tasks.retrieve.versions.integrity import (
    FILE,
    changed_file,
    known_digests,
    number_of,
    require_intact,
    seal_tables,
)

# A partition of these is rebuilt by the next run, once the record is removed that says it is done.
_MADE_BY = {
    "documents": "state/refined", "state/folded": "state/refined", "state/refined": "state/refined",
    "nodes": "state/parsed", "edges": "state/parsed", "state/parsed": "state/parsed",
}  # fmt: skip
# Caches, plans, and notes that spare crawls a fetch: all of it can be computed or fetched again.
_SPARE = (
    "vectors/", "states/", "state/vectors/", "state/signatures/", "state/near/", "state/plans/",
    "state/staged/", "state/sorted/", "state/listed/", "state/repositories/", "state/looks/",
    "state/expansions/",
)  # fmt: skip
# No run can do without these, and no run can rebuild them.
_IN_THE_WAY = ("state/aliases/", "reports/", "trajectories/")
_LEARNED = "induced/"  # libraries of skills, which are built of trajectories/
# Beside those of _MADE_BY, the tables whose files a manifest lists.
_LISTED = ("state/seen", "state/aliases", FORGOTTEN_FOLDER, "raw/documents", "raw/listings", "dropped")
_NOT_OURS = ("models/", "lance/", "prefect/")


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect: what was found, where (relative to the root), what was done, and whether that mended it."""

    found: str
    where: str
    done: str
    mended: bool


def examine(root: Root, policy: LicencePolicy = SERVE_POLICY) -> list[Defect]:
    """Read every file and what is served, mend what can be mended, and return the defects found, in order.

    - Files of unfinished writes are removed.
    - What a manifest lists and is not there is treated as if it could not be read.
    - Current tables that cannot be read, or hold a row twice, are removed with the records that say they are
      done, so that the next run rebuilds them.
    - `state/seen` is rebuilt from raw snapshots.
    - Blobs that are damaged are removed; the next run makes them, and missing ones, from raw snapshots.
    - If the served version cannot be read, the newest published one that can is served. If none can, the
      index is removed, so that the next run builds it.
    - What cannot be rebuilt is reported. Raw snapshots stay as they are; aliases, which every run reads, are
      set aside.
    """
    found = [*_unfinished(root), *_records(root), *mend_missing(root), *_files(root), *_doubled(root)]
    found += [*_blobs(root), *examine_served(root), *_licences(root, policy)]
    seal_tables(root)  # of what an earlier version of this program published
    return found


def mend_missing(root: Root) -> list[Defect]:
    """Arrange that the next run makes again each table file that is missing, and return the defects.

    A run does this before it crawls: what it took for absent, it would retire.
    """
    return [_mend(root, file, f"{root.at(file)} is missing") for file in missing_files(root)]


def _unfinished(root: Root) -> Iterator[Defect]:
    found = root.unfinished()
    root.delete_unfinished()
    yield from (Defect("a write that was never finished", f, "removed", mended=True) for f in found)


# What reads a record of the state, and refuses one of another shape.
_READERS: dict[str, Callable[[Root], object]] = {
    "state/sources.json": read_sources,
    FILE: known_digests,
    TUNED_FILE: read_tuned,
}


def _records(root: Root) -> Iterator[Defect]:
    """Remove damaged JSON files of the state; `examine_served` reads those of published versions."""
    for file in [*root.files("state", ".json"), *root.files(_LEARNED.rstrip("/"), ".json")]:
        if file in (SERVED, LICENCES) or file.startswith(f"{PUBLISHED}/"):
            continue
        try:
            record = root.read_json(file)
            if file in _READERS:
                _READERS[file](root)
            shaped = not file.startswith("state/runs/") or is_run(record or {})
            why = "" if shaped else f"{root.at(file)} is no record of a run"
        except (StorageError, UnicodeDecodeError) as error:
            why = str(error)
        if why and file == TUNED_FILE:  # another version of this program may know it
            yield Defect(why, file, f"left: searches go on with the packaged numbers; {UNUSED}", mended=True)
        elif why:
            root.delete(file)
            yield Defect(why, file, "removed: the next run notes it anew", mended=True)


def _licences(root: Root, policy: LicencePolicy) -> Iterator[Defect]:
    try:
        served = read_served(root)
        if served is None:
            return
        require_licences(root)
    except (StorageError, UnicodeDecodeError) as error:
        root.delete(LICENCES)
        if served := read_served(root):
            classify_licences(root, served.skills, policy)
            yield Defect(str(error), LICENCES, "worked out again, by the settings of now", mended=True)


def _files(root: Root) -> Iterator[Defect]:
    for file in root.files("", ".parquet"):
        # Mending one file removes others.
        if file.startswith(_NOT_OURS) or not root.exists(file):
            continue
        try:
            rows = read_columns(root, file, None, SCHEMAS.get(table_of(file))).height
        except NewerSchema:
            continue
        except StorageError as error:
            yield _mend(root, file, str(error))
            continue
        if differs := _differs_from_entry(root, file, rows):
            yield _mend(root, file, differs)


def _differs_from_entry(root: Root, file: str, rows: int) -> str | None:
    """Compare a table's file with the manifest; return what differs if the file can be made again."""
    table = table_of(file)
    if table not in (*_MADE_BY, *_LISTED):
        return None
    differs = Manifest(root, table).adopt(file, rows)
    return differs if table in (*_MADE_BY, "state/seen") else None


def _mend(root: Root, file: str, why: str) -> Defect:
    base, below = split_backfill(file)
    folder = str(PurePosixPath(below).parent)
    if below.startswith(_SPARE):
        forget_entry(root, file)
        root.delete(file)
        return Defect(why, file, "removed: it is worked out anew when needed", mended=True)
    if below.startswith(_LEARNED):
        from tasks.induce.library.held import MADE  # noqa: PLC0415 (loads what induces)

        root.delete(MADE)
        root.delete(file)
        return Defect(why, file, "removed: the next `skillery induce` makes it anew", mended=True)
    if folder in _MADE_BY:
        _remove_made(root, base, folder, PurePosixPath(below).name)
        return Defect(why, file, "removed: the next run makes it anew", mended=True)
    if folder == "state/seen":
        return Defect(why, file, _rebuild_seen(root, base, file), mended=True)
    done = _named_as_lost(root, file, in_the_way=below.startswith(_IN_THE_WAY))
    return Defect(why, file, done, mended=False)


def _named_as_lost(root: Root, file: str, *, in_the_way: bool) -> str:
    """Say what is done about a file that is nowhere else; one that every run reads is set aside."""
    if not root.exists(file):
        if in_the_way:
            forget_entry(root, file)
            return "lost: runs go on without it; put a copy of it back, or the ids in it are unknown"
        return "lost: put a copy of it back, or delete its entry below state/manifests to go on without it"
    if in_the_way:
        forget_entry(root, file)
        root.write(f"{file}.damaged", root.read(file))
        root.delete(file)
        return f"set aside as {file}.damaged, so that runs go on: put a copy of it back, or delete it"
    return "left: it is nowhere else; put a copy of it back, or delete it"


def _rebuild_seen(root: Root, base: str, file: str) -> str:
    if base:  # a backfill rebuilds all of it at its start
        forget_entry(root, file)
        root.delete(file)
        return "removed: the next backfill of that day makes it anew"
    count = recover_seen(root, file)
    for spec, record in read_sources(root).items():
        write_source(root, spec, {**record, "version": None})
    return f"made anew of raw snapshots, {count} rows; the next run reads every source to its end"


def _remove_made(root: Root, base: str, folder: str, name: str) -> None:
    # The record first: a doctor that is killed in between must not leave a record of rows that are gone.
    for file in (f"{base}{_MADE_BY[folder]}/{name}", f"{base}{folder}/{name}"):
        forget_entry(root, file)
        root.delete(file)


def _doubled(root: Root) -> Iterator[Defect]:
    keys = {
        documents_table(root): ["doc_id"],
        nodes_table(root): ["node_id"],
        edges_table(root): ["src_id", "dst_id", "edge_type"],
    }
    for table, key in keys.items():
        for file in root.files(table.folder, ".parquet"):
            rows = read_columns(root, file, key)
            if twice := rows.height - rows.n_unique():
                _remove_made(root, "", table.folder, PurePosixPath(file).name)
                found = f"{twice} rows stand there twice, by {', '.join(key)}"
                yield Defect(found, file, "removed: the next run makes it anew", mended=True)


def _blobs(root: Root) -> Iterator[Defect]:
    """Remove damaged blobs, and have the documents that name these or missing ones refined again."""
    for place in (root, *rebuilt_days(root)):
        store, refined = BlobStore(place), refined_table(place)
        try:
            named = blobs_named(place)
        except NewerSchema:
            continue
        wrong = store.unreadable(sorted({*store.digests(), *named["sha256"]}))
        if not wrong:
            continue
        ids = set(named.filter(pl.col("sha256").is_in(list(wrong)))["doc_id"])
        again = refined.read().filter(pl.col("doc_id").is_in(list(ids)))
        refined.replace(ids, again.with_columns(digest=pl.lit("")))
        store.delete(wrong)
        base = place.uri.removeprefix(root.uri).strip("/")
        for digest, why in wrong.items():
            where = "/".join(filter(None, (base, blob_file(digest))))
            yield Defect(why, where, "the next run makes it anew from raw snapshots", mended=True)


def examine_served(root: Root) -> Iterator[Defect]:
    """Read the served version and the records of all published ones; mend and yield the defects found.

    Raises `SchemaMismatch` if a newer version of this program wrote a table; it is not damaged. Raises
    `Unreachable` if the bucket does not answer.
    """
    yield from _published(root)
    yield from _manifests(root, published_versions(root))
    versions = published_versions(root)
    try:
        served, why = read_served(root), None
    except StorageError as error:
        served, why = None, str(error)
    if served is None and why is None and not versions:
        return
    if served is not None:
        path = str(served.model.get("path"))
        if not root.exists(path):
            found = f"the encoder of {served.version} is gone"
            yield Defect(found, path, "left: the next run exports it anew", mended=True)
            return
        why = _why_unreadable(root, served)
        if why is None:
            yield from _routing(root, served)
            yield from _tags(root)
            return
    others = [version for version in versions if version != served]
    yield _serve_another(root, served, why or f"{SERVED} is missing", others)


def _manifests(root: Root, versions: list[Served]) -> Iterator[Defect]:
    """Remove damaged manifests, newest first: one of them keeps every version of its table from opening."""
    for name in table_names(root):
        for file in root.files(f"lance/{name}.lance/_versions", ".manifest"):
            number = number_of(file) or 0
            try:
                TableAt(root, name, number).opened()
            except SchemaMismatch:
                raise
            except StorageError as error:
                if manifest_reads(file, root.read(file)):
                    continue  # something else failed, which may pass
                root.delete(file)
                gone = {v.version for v in versions if v.tables().get(name) == number}
                for version in gone:
                    drop_published(root, version)
                said = f"; {', '.join(sorted(gone))} can be gone back to no more" if gone else ""
                yield Defect(str(error), file, f"removed{said}", mended=True)


def _tags(root: Root) -> Iterator[Defect]:
    mended, dropped = mend_tags(root)
    for name, label in mended:
        found = f"the tag of {label} was missing, damaged or on another version"
        yield Defect(found, f"lance/{name}.lance", "it was made again", mended=True)
    for name, label in dropped:
        found = f"version {label} is tagged, and was never published or is gone"
        yield Defect(found, f"lance/{name}.lance", "its tag was taken off", mended=True)


def _routing(root: Root, served: Served) -> Iterator[Defect]:
    if why := damaged_routing(root, served):
        done = "removed: each process makes it for itself until the next run, which keeps one"
        yield Defect(why, drop_routing(root, served), done, mended=True)


def _published(root: Root) -> Iterator[Defect]:
    for file in root.files(PUBLISHED, ".json"):
        try:
            read_published(root, file)
        except StorageError as error:
            root.delete(file)
            done = "removed: that version can be gone back to no more"
            yield Defect(str(error), file, done, mended=True)


def _why_unreadable(root: Root, served: Served) -> str | None:
    try:
        require_intact(root, served)
        changed = changed_file(root, served)
    except SchemaMismatch:
        raise
    except StorageError as error:
        return str(error)
    return changed and f"{root.at(changed)} is not as it was written"


def _serve_another(root: Root, served: Served | None, why: str, others: list[Served]) -> Defect:
    if served is not None and served.induced is not None:
        rest = replace(served, induced=None)
        if _why_unreadable(root, rest) is None:
            write_served(root, rest)
            done = "the rest is served without learned skills; the next `skillery induce` makes them anew"
            return Defect(why, f"lance/{INDUCED}.lance", done, mended=True)
    known = {version.version for version in published_versions(root)}
    for other in others:
        if _why_unreadable(root, other) is None:
            write_served(root, other)
            # Where the way back was dropped, publishing must not record it again: its table is gone, and a
            # later version of the table will have its number.
            for version in {v.version for v in published_versions(root)} - known:
                drop_published(root, version)
            return Defect(why, SERVED, f"{other.version} is served again", mended=True)
    # The next run rebuilds all of it from the corpus and from cached vectors.
    for place in (SERVED, PUBLISHED, ROUTING, "lance"):
        root.delete(place)
    done = "no version published can be read: the index is removed, the next run builds and serves it anew"
    return Defect(why, SERVED, done, mended=True)
