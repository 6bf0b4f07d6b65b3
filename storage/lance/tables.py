"""The Lance tables `skills`, `nodes` and `induced`: schemas, a reader at a version, the one writer.

This module and `storage.lance.versions` alone know LanceDB.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from storage.errors import NewerSchema, StorageError, Unreachable
from storage.root import Root
from storage.schemas import SCHEMA_VERSION

if TYPE_CHECKING:  # their imports take longer than a query
    import lancedb
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

SKILLS, NODES, INDUCED = "skills", "nodes", "induced"
TABLES = (SKILLS, NODES, INDUCED)
KEYS = {SKILLS: "doc_id", NODES: "node_id", INDUCED: "row_id"}
SKILL, RUN, STATE = "skill", "run", "state"  # the kinds of rows of `induced`
# The columns with an index. Words are found by the routing index.
INDEXED = {SKILLS: ["doc_id", "doc_key"], NODES: ["doc_id", "node_id"], INDUCED: ["row_id"]}
_IDS_PER_DELETE = 500
# A merge writes every row again, and a night adds one file: weekly compaction comes before there are so many.
_MANY_FILES = 20
# Versions are kept until retention removes them: optimize must not clean up under a reader.
_KEEP = timedelta(days=36500)
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


def database(root: Root) -> lancedb.DBConnection:
    """Return the LanceDB of a root; for `storage.lance.versions`. Raises `Unreachable`."""
    import lancedb  # noqa: PLC0415 (takes half a second, and most queries read no table)

    if not root.place.patience:
        return lancedb.connect(root.at("lance"))
    root.exists("state/served.json")  # LanceDB would ask six times as long for a list of what is there
    options = {
        "client_max_retries": "10000", "client_retry_timeout": f"{root.place.patience:.0f}",
        "lance_aimd_max_retries": "0",
    }  # fmt: skip
    return lancedb.connect(root.at("lance"), storage_options=options)


@contextmanager
def reached() -> Iterator[None]:
    """Tell a bucket that did not answer LanceDB as `Unreachable`: nothing is damaged."""
    try:
        yield
    except (ValueError, RuntimeError, OSError) as error:
        if (outage := Unreachable.of("a table of LanceDB in the bucket", error)) is None:
            raise
        raise outage from error


@reached()
def open_vendor_table(root: Root, name: str, version: int) -> lancedb.table.Table:
    """Return LanceDB's table as of a version; for `storage.lance.versions`.

    Raises:
        StorageError: The table or the version is not there.
        NewerSchema: It was written by a newer version of this program.
    """
    try:
        table = database(root).open_table(name)
        table.checkout(version)
        metadata = table.schema.metadata or {}
        written = int(metadata.get(b"schema_version", b"0"))
    except (ValueError, RuntimeError, OSError) as error:
        if Unreachable.of(name, error):
            raise
        msg = f"table {name} at version {version} cannot be opened ({str(error).splitlines()[0]})"
        raise StorageError(msg) from error
    if written > SCHEMA_VERSION:
        msg = f"table {name} has schema version {written}, this program knows {SCHEMA_VERSION}: upgrade"
        raise NewerSchema(msg)
    return table


def is_damage(error: Exception) -> bool:
    """Tell whether LanceDB raises such an error for files that are gone or damaged."""
    # The class of a panic in its library is in no module that could be imported.
    return isinstance(error, RuntimeError | OSError | ValueError) or type(error).__name__ == "RustPanic"


class _Readable(ABC):
    """What may be read of a table, as a writer or a reader has it open."""

    @abstractmethod
    def opened(self) -> lancedb.table.Table:
        """Return LanceDB's table."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self.opened().schema

    @property
    def model(self) -> dict[str, Any]:
        """The identity of the encoder that the vectors are of; empty if the table says none."""
        found: dict[str, Any] = json.loads((self.schema.metadata or {}).get(b"model", b"{}"))
        return found

    @reached()
    def rows(self, columns: Sequence[str] | None = None, **among: Collection[str]) -> pa.Table:
        """Return rows, of all columns or those named; of `name=values` those with one of the values there."""
        return self._chosen(columns, among).to_arrow()

    @reached()
    def first(self, columns: Sequence[str] | None = None, **among: Collection[str]) -> dict[str, Any] | None:
        """Return one of the rows that `rows` returns, None where there is none."""
        found: list[dict[str, Any]] = self._chosen(columns, among).limit(1).to_arrow().to_pylist()
        return found[0] if found else None

    def frame(self, columns: Sequence[str], **among: Collection[str]) -> pl.DataFrame:
        """Return what `rows` does, as a frame of Polars."""
        return pl.DataFrame(self.rows(columns, **among))

    def batches(
        self, columns: Sequence[str] | None = None, **among: Collection[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield what `rows` returns in batches: together they may be gigabytes."""
        with reached():
            yield from self._chosen(columns, among).to_batches()

    @reached()
    def nearest(self, vector: npt.NDArray[np.float32], k: int, columns: Sequence[str]) -> pa.Table:
        """Return the `k` rows of the largest product with a vector, and that as 1 - `_distance`."""
        query: Any = self.opened().search(vector)  # its declared class has no distance_type
        return query.distance_type("dot").limit(k).select([*columns, "_distance"]).to_arrow()

    @reached()
    def count(self, **among: Collection[str]) -> int:
        """Return the number of the rows that `rows` returns."""
        return int(self.opened().count_rows(_where(among)))

    @reached()
    def size(self) -> tuple[int, int]:
        """Return the bytes of the table's files, and how many files hold its rows."""
        found: Any = self.opened().stats()  # annotated as a class, a dictionary when it comes
        return int(found["total_bytes"]), int(found["fragment_stats"]["num_fragments"])

    @reached()
    def unindexed(self) -> dict[str, int]:
        """Return how many rows are not in the index, for each column that has one."""
        return {i.columns[0]: int(i.num_unindexed_rows or 0) for i in self.opened().list_indices()}

    def _chosen(self, columns: Sequence[str] | None, among: dict[str, Collection[str]]) -> Any:  # noqa: ANN401 (LanceDB's builder)
        chosen: Any = self.opened().search()
        if (where := _where(among)) is not None:
            chosen = chosen.where(where)
        return chosen if columns is None else chosen.select([*columns])


def _where(among: dict[str, Collection[str]]) -> str | None:
    return " AND ".join(f"{name} IN ({_quoted(values)})" for name, values in among.items()) or None


def _quoted(values: Collection[str]) -> str:
    return ", ".join("'" + v.replace("'", "''") + "'" for v in values) or "NULL"


class TableAt(_Readable):
    """A table as of a version, opened when it is first read; later writes do not show.

    Its methods raise `StorageError` where the table or the version is not there, and `NewerSchema` where a
    newer version of this program wrote it.
    """

    def __init__(self, root: Root, name: str, version: int) -> None:
        self._root, self.name, self.version = root, name, version
        self._table: lancedb.table.Table | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has been read."""
        return self._table is not None

    def opened(self) -> lancedb.table.Table:
        """Return LanceDB's table."""
        if self._table is None:
            self._table = open_vendor_table(self._root, self.name, self.version)
        return self._table


class TableWriter(_Readable):
    """Writes one table, in bulk, from a base version on; only the holder of the root's lock may.

    Without a base, or with another schema (another encoder), the table begins empty, and old versions stay
    readable. Otherwise the first write goes on from `base`: what a run that died left after it is not read,
    and a writer that writes nothing adds no version.

    `name` is one of `TABLES`, `schema` has the model's identity in its metadata. `StorageError` is raised
    where the base cannot be opened, `NewerSchema` where a newer version of this program wrote it.
    """

    @reached()
    def __init__(self, root: Root, name: str, schema: pa.Schema, base: int | None) -> None:
        self._db, self.name = database(root), name
        self.rebuilt, self.written = False, False
        exists = name in self._db.list_tables().tables
        if exists and base is not None:
            self._table = open_vendor_table(root, name, base)
        if not exists or base is None or not _fits(self._table.schema, schema):
            self._table = self._db.create_table(name, schema=schema, mode="overwrite" if exists else "create")
            self.rebuilt = self.written = True
        self._schema, self._detached = schema, not self.rebuilt

    def opened(self) -> lancedb.table.Table:
        """Return LanceDB's table."""
        return self._table

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema that rows are added with."""
        return self._schema

    @property
    def version(self) -> int:
        """The version that was written last, or the base."""
        return int(self._table.version)

    @reached()
    def delete(self, ids: Collection[str]) -> None:
        """Remove every row of these documents; of `induced`, these rows."""
        column, named = KEYS[INDUCED] if self.name == INDUCED else "doc_id", sorted(ids)
        for start in range(0, len(named), _IDS_PER_DELETE):
            self._begin()
            self._table.delete(f"{column} IN ({_quoted(named[start : start + _IDS_PER_DELETE])})")

    @reached()
    def add(self, rows: pa.Table) -> None:
        """Append rows in one write."""
        if rows.num_rows:
            self._begin()
            self._table.add(rows.cast(self._schema))

    def _begin(self) -> None:
        if self._detached:
            base = self._table.version
            self._table = self._db.open_table(self.name)
            if self._table.version != base:
                self._table.checkout(base)
                self._table.restore()
        self._detached, self.written = False, True

    @reached()
    def finish(self, *, merge: bool = False) -> int:
        """Merge files if there are many, or in any case with `merge`; index columns; return the version.

        Nothing happens, and the version is the base, if nothing was written and `merge` is not asked for.
        Indices are made after the load: one made on an empty table covers nothing.
        """
        if self.written or merge:
            self._begin()
            if merge or self.size()[1] > _MANY_FILES:
                self._table.optimize(cleanup_older_than=_KEEP)
            make_indices(self._table, self.name)
        return self.version


def make_indices(table: lancedb.table.Table, name: str) -> None:
    """Make a table's indices over every row, and drop others, unless it is empty."""
    from lancedb.index import BTree  # noqa: PLC0415 (as above)

    for index in table.list_indices():  # earlier versions had one of words, which no query asked
        if index.columns[0] not in INDEXED[name]:
            table.drop_index(index.name)
    if table.count_rows():
        for column in INDEXED[name]:
            table.create_index(column, config=BTree(), replace=True)


def _fits(found: pa.Schema, wanted: pa.Schema) -> bool:
    """Tell whether rows of `wanted` may be added: its columns, its encoder; an older version's rows stay."""
    same_model = (found.metadata or {}).get(b"model") == (wanted.metadata or {}).get(b"model")
    return same_model and bool(found.equals(wanted))
