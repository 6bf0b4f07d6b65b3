"""The versions of the Lance tables: their tags, how old ones are removed, how rows are removed from all."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from storage.errors import StorageError, Unreachable
from storage.lance.tables import database, is_damage, make_indices, open_vendor_table, reached
from storage.root import Root

if TYPE_CHECKING:  # their imports take longer than a query
    import lancedb
    import pyarrow as pa

log = logging.getLogger(__name__)
# Cleaning reads the clock anew after it has compacted: what is this little older stays for another time.
MARGIN = timedelta(minutes=1)


@reached()
def table_names(root: Root) -> list[str]:
    """Return the names of the tables that exist."""
    return list(database(root).list_tables().tables)


@reached()
def versions_of(root: Root, name: str) -> set[int]:
    """Return a table's versions, none where there is no table."""
    if name not in table_names(root):
        return set()
    return {int(v["version"]) for v in _newest(root, name).list_versions()}


@reached()
def tagged(root: Root, name: str) -> dict[str, int]:
    """Return a table's tags that are those of published versions, `v-...`, each with what it is on."""
    tags = _newest(root, name).tags.list()
    return {label: int(t["version"]) for label, t in tags.items() if label.startswith("v-")}


@reached()
def tag(root: Root, name: str, label: str, version: int) -> None:
    """Tag a version, so that cleanup leaves it; a tag of that name that is already there is moved."""
    tags = _newest(root, name).tags
    if label in tags.list():
        tags.update(label, version)
    else:
        tags.create(label, version)


@reached()
def untag(root: Root, name: str, label: str) -> None:
    """Take a tag off a table."""
    _newest(root, name).tags.delete(label)


@reached()
def drop_table(root: Root, name: str) -> None:
    """Remove a table with all its versions."""
    database(root).drop_table(name)


@reached()
def rewrite(root: Root, name: str, base: int, left: Callable[[pa.RecordBatch], pa.RecordBatch]) -> int:
    """Write a table to new files, without some of its rows; return the version.

    Deleting alone leaves a row's bytes in its file: compaction rewrites a file only when a tenth of it is
    deleted. Order and vectors of the other rows stay; earlier versions stay until `keep_only`. Raises
    `StorageError` where the base cannot be opened.
    """
    import pyarrow as pa  # noqa: PLC0415 (only who writes needs it)

    old = open_vendor_table(root, name, base)
    batches = old.search().to_batches()
    reader = pa.RecordBatchReader.from_batches(old.schema, (left(batch) for batch in batches))
    table = database(root).create_table(name, data=reader, schema=old.schema, mode="overwrite")
    make_indices(table, name)
    return int(table.version)


@reached()
def keep_only(root: Root, name: str, version: int) -> None:
    """Remove every version of a table but its latest, with their tags and files; their readers fail.

    Raises:
        StorageError: Something wrote to the table meanwhile; nothing served is lost, try again.
    """
    table = _newest(root, name)
    for label, entry in table.tags.list().items():
        if int(entry["version"]) != version:
            table.tags.delete(label)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that readers of old versions fail is meant
        table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    left = [int(v["version"]) for v in _newest(root, name).list_versions()]
    if left != [version]:
        msg = f"table {name} has versions {left} instead of {version} alone: another process writes to it"
        raise StorageError(msg)


@reached()
def prune(
    root: Root, name: str, kept: Collection[int], labels: Collection[str], margin: timedelta = MARGIN,
    least: int = 1,
) -> None:  # fmt: skip
    """Remove tags of a table, and all versions older than those kept, with the files that only they need.

    Versions `kept` stay with all later ones, and those by less than `margin` older. Of fewer than `least`
    versions the files stay: LanceDB removes files only where it writes every row again. A table that lacks a
    version that is kept raises `StorageError`.
    """
    table = _newest(root, name)
    tags = table.tags.list()
    for label in labels:
        if label in tags and int(tags[label]["version"]) not in kept:
            table.tags.delete(label)
    stay = {*kept, *(int(entry["version"]) for entry in table.tags.list().values())}
    since = {int(v["version"]): v["timestamp"] for v in table.list_versions()}
    if not stay <= since.keys():
        raise StorageError(f"table {name} lacks version {min(stay - since.keys())}, which is published")
    if stay and sum(version < min(stay) for version in since) >= least:
        # Lance refuses a cutoff that would take a tagged version; its clock has no zone.
        # By their dates, not their numbers: a clock may have been set back in between.
        age = datetime.now() - min(since[version] for version in stay)  # noqa: DTZ005
        try:
            table.optimize(cleanup_older_than=max(age, timedelta()) + margin)
        except RuntimeError as error:
            if Unreachable.of(name, error):
                raise
            log.warning("files of old versions of %s stay until the next time: %s", name, error)


def manifest_reads(file: str, data: bytes) -> bool:
    """Tell whether Lance can read a manifest's bytes; `file` is its name, which says the version."""
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder) / "lance" / "alone.lance" / "_versions"
        versions.mkdir(parents=True)
        (versions / PurePosixPath(file).name).write_bytes(data)
        try:
            database(Root(folder)).open_table("alone")
        except Exception as error:
            if not is_damage(error):
                raise
            return False
    return True


def _newest(root: Root, name: str) -> lancedb.table.Table:
    return database(root).open_table(name)
