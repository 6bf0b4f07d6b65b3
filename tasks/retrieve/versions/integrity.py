"""The integrity of a published version: whether every row and each leg can be read."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import StorageError
from storage.lance import INDUCED, KEYS, NODES, SKILLS, connect, is_damage, open_at, quoted
from storage.root import Root
from storage.served import Served
from tasks.models.token_states import require_packed
from tasks.refine.text.canonical import content_hash
from tasks.retrieve.index.stored_nodes import misplaced
from tasks.retrieve.routing.search import rank_dense
from tasks.retrieve.suggest.stored import require_records

if TYPE_CHECKING:  # its import takes longer than a query
    import lancedb


def open_tables(root: Root, version: Served) -> dict[str, lancedb.table.Table]:
    """Return a version's tables by name.

    Raises:
        StorageError: A table, the version of it, or the encoder's export is gone.
    """
    path = str(version.model.get("path"))
    if not root.exists(path):
        msg = f"{version.version} cannot be served: its encoder {root.at(path)} is gone"
        raise StorageError(msg)
    db, tables = connect(root), {}
    for name, at in version.tables().items():
        tables[name] = open_at(db, name, at)
        tables[name].count_rows()
    return tables


def require_intact(root: Root, version: Served) -> None:
    """Read and check every row of a version's tables, batch by batch, and query each index once.

    Raises:
        StorageError: A part of it is gone, is damaged, or contradicts the rest.
    """
    tables = open_tables(root, version)
    for name, table in tables.items():
        try:
            _read_rows(name, table, tables[SKILLS])
            for first in table.search().limit(1).to_arrow().to_pylist():
                _query_indices(name, table, first)
        except Exception as error:
            if not is_damage(error):
                raise
            reason = str(error).splitlines()[0]
            msg = f"{version.version} cannot be read: table {name} at version {table.version} ({reason})"
            raise StorageError(msg) from error


def _read_rows(name: str, table: lancedb.table.Table, skills: lancedb.table.Table) -> None:
    rows = _checked(name, table)
    if name != NODES:
        deque(rows, maxlen=0)  # reads every row, and keeps none
        return
    # Skills and nodes are written apart: each node must stand in the body that is served with it.
    for node_id in misplaced(skills, rows):
        msg = f"node {node_id} is not what stands in the text of its skill"
        raise ValueError(msg)


def _checked(name: str, table: lancedb.table.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows, if texts have their hashes, vectors unit length, and states their full size."""
    for batch in table.search().to_batches():
        column = batch.column("vector")
        vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        if not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3):
            msg = "a vector is not of unit length"
            raise ValueError(msg)
        if "states" in batch.schema.names:
            require_packed(pc.binary_length(batch.column("states")).drop_null().to_pylist())
        if name == SKILLS:
            _require_bodies(batch)
        if name == INDUCED:
            require_records(batch)
        yield batch


def _require_bodies(skills: pa.RecordBatch) -> None:
    names = ("doc_id", "name", "description", "text", "body_start", "body_hash", "content_hash")
    columns = (skills.column(name).to_pylist() for name in names)
    for doc_id, name, description, text, start, body_hash, content in zip(*columns, strict=True):
        body = text[start:]
        held = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        if held != body_hash or content_hash(name, description, body) != content:
            msg = f"the text of {doc_id} is not what its hash says"
            raise ValueError(msg)


def _query_indices(name: str, table: lancedb.table.Table, row: dict[str, Any]) -> None:
    key = KEYS[name] if name == INDUCED else "doc_id"
    found = table.search().where(f"{key} IN ({quoted([row[key]])})").select([key]).to_arrow()
    if not found.num_rows:
        msg = f"the index of ids does not find {row[key]}"
        raise ValueError(msg)
    if name == SKILLS:
        rank_dense(table, row["vector"], 1)
