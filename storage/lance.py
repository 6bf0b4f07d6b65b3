"""The Lance tables `skills`, `nodes` and `induced`: schemas, the one writer, readers at a version."""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from storage.errors import NewerSchema, StorageError
from storage.root import Root
from storage.schemas import SCHEMA_VERSION

if TYPE_CHECKING:  # their imports take longer than a query
    import lancedb
    import pyarrow as pa

log = logging.getLogger(__name__)
SKILLS, NODES, INDUCED = "skills", "nodes", "induced"
TABLES = (SKILLS, NODES, INDUCED)
KEYS = {SKILLS: "doc_id", NODES: "node_id", INDUCED: "row_id"}
_IDS_PER_DELETE = 500
# A merge writes every row again, and a night adds one file: weekly compaction comes before there are so many.
_MANY_FILES = 20
# Versions are kept until retention removes them: optimize must not clean up under a reader.
_KEEP = timedelta(days=36500)
# Cleaning reads the clock anew after it has compacted: what is this little older stays for another time.
MARGIN = timedelta(minutes=1)
_TEXTS = "list of strings"
_SKILL_FIELDS = [
    ("doc_id", "string"), ("doc_key", "string"), ("kind", "string"), ("name", "string"),
    ("description", "string"), ("text", "string"), ("body_start", "int64"), ("n_tokens", "int64"),
    ("source", "string"), ("repo", "string"), ("ref", "string"), ("commit", "string"),
    ("path", "string"), ("url", "string"), ("author", "string"), ("stars", "int64"),
    ("category", "string"), ("language", "string"), ("licence", "string"), ("risks", _TEXTS),
    ("stale", "bool"), ("content_hash", "string"), ("body_hash", "string"),
    ("digest", "string"), ("nodes_digest", "string"),
]  # fmt: skip
_NODE_FIELDS = [
    ("node_id", "string"), ("doc_id", "string"), ("ordinal", "int32"), ("node_type", "string"),
    ("heading_path", _TEXTS), ("lead_in", "string"), ("block", "string"), ("start", "int32"),
    ("end", "int32"), ("text", "string"), ("n_tokens", "int32"), ("classifier", "string"),
    ("confidence", "float32"), ("states", "large_binary"),
]  # fmt: skip
# `kind` is skill, run or state; `text` is what the vector is of; `record` is JSON.
_INDUCED_FIELDS = [(name, "string") for name in ("row_id", "kind", "domain", "text", "record", "digest")]
_FIELDS = {SKILLS: _SKILL_FIELDS, NODES: _NODE_FIELDS, INDUCED: _INDUCED_FIELDS}


def schema_of(table: str, model: dict[str, Any]) -> pa.Schema:
    """Return the Arrow schema of a table for an encoder's identity (`name`, `revision`, `dimension`)."""
    import pyarrow as pa  # noqa: PLC0415 (only who writes needs it)

    texts = pa.list_(pa.string())
    fields = [(n, texts if kind == _TEXTS else pa.type_for_alias(kind)) for n, kind in _FIELDS[table]]
    vector = ("vector", pa.list_(pa.float32(), int(model["dimension"])))
    metadata = {"model": json.dumps(model, sort_keys=True), "schema_version": str(SCHEMA_VERSION)}
    return pa.schema([*fields, vector], metadata=metadata)


def connect(root: Root) -> lancedb.DBConnection:
    """Return the root's LanceDB."""
    return _database(root.at("lance"))


def _database(uri: str) -> lancedb.DBConnection:
    import lancedb  # noqa: PLC0415 (takes half a second, and most queries read no table)

    return lancedb.connect(uri)


def table_names(db: lancedb.DBConnection) -> list[str]:
    """Return the names of the tables that exist."""
    return list(db.list_tables().tables)


def open_at(db: lancedb.DBConnection, name: str, version: int) -> lancedb.table.Table:
    """Return a table as of a version; later writes do not show.

    Raises:
        StorageError: The table or the version is not there.
        NewerSchema: It was written by a newer version of this program.
    """
    try:
        table = db.open_table(name)
        table.checkout(version)
        metadata = table.schema.metadata or {}
        written = int(metadata.get(b"schema_version", b"0"))
    except (ValueError, RuntimeError, OSError) as error:
        msg = f"table {name} at version {version} cannot be opened ({str(error).splitlines()[0]})"
        raise StorageError(msg) from error
    if written > SCHEMA_VERSION:
        msg = f"table {name} has schema version {written}, this program knows {SCHEMA_VERSION}: upgrade"
        raise NewerSchema(msg)
    return table


def model_of(table: lancedb.table.Table) -> dict[str, Any]:
    """Return the identity of the encoder that a table's vectors are of; empty if it says none."""
    found: dict[str, Any] = json.loads((table.schema.metadata or {}).get(b"model", b"{}"))
    return found


def is_damage(error: Exception) -> bool:
    """Tell whether LanceDB raises such an error for files that are gone or damaged."""
    # The class of a panic in its library is in no module that could be imported.
    return isinstance(error, RuntimeError | OSError | ValueError) or type(error).__name__ == "RustPanic"


def quoted(values: Collection[str]) -> str:
    """Return values as the inside of an SQL IN list, quotes escaped."""
    return ", ".join("'" + v.replace("'", "''") + "'" for v in values)


class TableWriter:
    """Writes one table, in bulk, from a base version on; only the holder of the root's lock may.

    Without a base, or with another schema (another encoder), the table begins empty, and old versions stay
    readable. Otherwise the first write goes on from `base`: what a run that died left after it is not read,
    and a writer that writes nothing adds no version.

    Args:
        db: The database.
        name: One of `TABLES`.
        schema: The table's Arrow schema, model identity in its metadata.
        base: The version to go on from; None: start empty.

    Raises:
        StorageError: The base cannot be opened.
        NewerSchema: It was written by a newer version of this program.
    """

    def __init__(self, db: lancedb.DBConnection, name: str, schema: pa.Schema, base: int | None) -> None:
        self._db, self._name = db, name
        self.schema, self.rebuilt, self.written = schema, False, False
        exists = name in table_names(db)
        if exists and base is not None:
            self.table = open_at(db, name, base)
        if not exists or base is None or not _fits(self.table.schema, schema):
            self.table = db.create_table(name, schema=schema, mode="overwrite" if exists else "create")
            self.rebuilt = self.written = True
        self._detached = not self.rebuilt

    def delete(self, ids: Collection[str]) -> None:
        """Remove every row of these documents; of `induced`, these rows."""
        column, named = KEYS[INDUCED] if self._name == INDUCED else "doc_id", sorted(ids)
        for start in range(0, len(named), _IDS_PER_DELETE):
            self._begin()
            self.table.delete(f"{column} IN ({quoted(named[start : start + _IDS_PER_DELETE])})")

    def add(self, rows: pa.Table) -> None:
        """Append rows in one write."""
        if rows.num_rows:
            self._begin()
            self.table.add(rows.cast(self.schema))

    def _begin(self) -> None:
        """Make the table writable, at its base."""
        if self._detached:
            base = self.table.version
            self.table = self._db.open_table(self._name)
            if self.table.version != base:
                self.table.checkout(base)
                self.table.restore()
        self._detached, self.written = False, True

    def finish(self, indexed: Collection[str], *, merge: bool = False) -> int:
        """Merge files if there are many, or in any case with `merge`; index columns; return the version.

        Indices are made after the load: one made on an empty table covers nothing.
        """
        self._begin()
        if merge or size_of(self.table)[1] > _MANY_FILES:
            self.table.optimize(cleanup_older_than=_KEEP)
        _index(self.table, indexed)
        return int(self.table.version)


def _index(table: lancedb.table.Table, columns: Collection[str]) -> None:
    """Make the indices of these columns over every row, and drop others, unless the table is empty."""
    from lancedb.index import BTree  # noqa: PLC0415 (as above)

    for index in table.list_indices():  # earlier versions had one of words, which no query asked
        if index.columns[0] not in columns:
            table.drop_index(index.name)
    if table.count_rows():
        for column in columns:
            table.create_index(column, config=BTree(), replace=True)


def rewrite(
    db: lancedb.DBConnection,
    name: str,
    base: int,
    *,
    left: Callable[[pa.RecordBatch], pa.RecordBatch],
    indexed: Collection[str],
) -> int:
    """Write a table to new files, without some of its rows; return the version.

    Deleting alone leaves a row's bytes in its file: compaction rewrites a file only when a tenth of it is
    deleted. Order and vectors of the other rows stay; earlier versions stay until `keep_only`.

    Args:
        db: The database.
        name: The table.
        base: The version that is copied.
        left: Returns what is left of a batch.
        indexed: Columns with an index.

    Raises:
        StorageError: The base cannot be opened.
    """
    import pyarrow as pa  # noqa: PLC0415 (only who writes needs it)

    old = open_at(db, name, base)
    batches = old.search().to_batches()
    reader = pa.RecordBatchReader.from_batches(old.schema, (left(batch) for batch in batches))
    table = db.create_table(name, data=reader, schema=old.schema, mode="overwrite")
    _index(table, indexed)
    return int(table.version)


def keep_only(db: lancedb.DBConnection, name: str, version: int) -> None:
    """Remove every version of a table but its latest, with their tags and files; their readers fail.

    Raises:
        StorageError: Something wrote to the table meanwhile; nothing served is lost, try again.
    """
    table = db.open_table(name)
    for label, entry in table.tags.list().items():
        if int(entry["version"]) != version:
            table.tags.delete(label)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that readers of old versions fail is meant
        table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    left = [int(v["version"]) for v in db.open_table(name).list_versions()]
    if left != [version]:
        msg = f"table {name} has versions {left} instead of {version} alone: another process writes to it"
        raise StorageError(msg)


def prune(
    db: lancedb.DBConnection,
    name: str,
    kept: Collection[int],
    labels: Collection[str],
    margin: timedelta = MARGIN,
    least: int = 1,
) -> None:
    """Remove tags of a table, and all versions older than those kept, with the files that only they need.

    Args:
        db: The database.
        name: The table.
        kept: Versions that stay, with all later ones.
        labels: Tags to remove; missing ones are ignored.
        margin: How much older than all that are kept a version must be to go.
        least: Of fewer versions the files stay: LanceDB removes files only where it writes every row again.

    Raises:
        StorageError: The table cannot be read, or lacks a version that is kept.
    """
    table = db.open_table(name)
    tags = table.tags.list()
    for label in labels:
        if label in tags and int(tags[label]["version"]) not in kept:
            table.tags.delete(label)
    tagged = {int(entry["version"]) for entry in table.tags.list().values()}
    since = {int(v["version"]): v["timestamp"] for v in table.list_versions()}
    stay = {*kept, *tagged}
    if not stay <= since.keys():
        msg = f"table {name} lacks version {min(stay - since.keys())}, which is published"
        raise StorageError(msg)
    if stay and sum(version < min(stay) for version in since) >= least:
        # Lance refuses a cutoff that would take a tagged version; its clock has no zone.
        # By their dates, not their numbers: a clock may have been set back in between.
        age = datetime.now() - min(since[version] for version in stay)  # noqa: DTZ005
        try:
            table.optimize(cleanup_older_than=max(age, timedelta()) + margin)
        except RuntimeError as error:
            log.warning("files of old versions of %s stay until the next time: %s", name, error)


def _fits(found: pa.Schema, wanted: pa.Schema) -> bool:
    """Tell whether rows of `wanted` may be added: its columns, its encoder; an older version's rows stay."""
    same_model = (found.metadata or {}).get(b"model") == (wanted.metadata or {}).get(b"model")
    return same_model and bool(found.equals(wanted))


def tag(db: lancedb.DBConnection, name: str, label: str, version: int) -> None:
    """Tag a version, so that cleanup leaves it; a tag of that name that is already there is moved."""
    tags = db.open_table(name).tags
    if label in tags.list():
        tags.update(label, version)
    else:
        tags.create(label, version)


def size_of(table: lancedb.table.Table) -> tuple[int, int]:
    """Return the bytes of a table's files at the version it is open at, and how many files hold its rows."""
    found: Any = table.stats()  # annotated as a class, a dictionary when it comes
    return int(found["total_bytes"]), int(found["fragment_stats"]["num_fragments"])


def tagged(db: lancedb.DBConnection, name: str) -> dict[str, int]:
    """Return a table's tags that are those of published versions, `v-...`, each with what it is on."""
    tags = db.open_table(name).tags.list()
    return {label: int(t["version"]) for label, t in tags.items() if label.startswith("v-")}


def untag(db: lancedb.DBConnection, name: str, label: str) -> None:
    """Take a tag off a table."""
    db.open_table(name).tags.delete(label)


def versions_of(db: lancedb.DBConnection, name: str) -> set[int]:
    """Return a table's versions, none where there is no table."""
    if name not in table_names(db):
        return set()
    return {int(v["version"]) for v in db.open_table(name).list_versions()}


def manifest_reads(file: str, data: bytes) -> bool:
    """Tell whether Lance can read a manifest's bytes; `file` is its name, which says the version."""
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder) / "alone.lance" / "_versions"
        versions.mkdir(parents=True)
        (versions / PurePosixPath(file).name).write_bytes(data)
        try:
            _database(folder).open_table("alone")
        except Exception as error:
            if not is_damage(error):
                raise
            return False
    return True
