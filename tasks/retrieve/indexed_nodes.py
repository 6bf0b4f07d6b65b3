"""Reads one document's nodes and vectors out of the table that is served."""

from __future__ import annotations

import lancedb
import numpy as np
import pyarrow as pa

from storage.errors import StorageError
from storage.lance import quoted
from storage.schemas import Node
from tasks.models.protocols import Vectors

_COLUMNS = list(Node.__dataclass_fields__)
_MAY_BE_NULL = ("lead_in",)


def indexed_nodes(table: lancedb.table.Table, doc_id: str) -> tuple[list[Node], Vectors]:
    """Return a document's nodes in order, and their vectors, shape `(nodes, dimension)`.

    Raises:
        StorageError: A value that every node has is missing.
    """
    chosen = table.search().where(f"doc_id IN ({quoted([doc_id])})").select([*_COLUMNS, "vector"])
    rows = chosen.to_arrow().sort_by("ordinal")
    if missing := [name for name in rows.column_names if _gaps(rows.column(name), name)]:
        msg = f"{doc_id}: nodes have no {', '.join(missing)}: the index is damaged"
        raise StorageError(f"{msg}, `skillery doctor` finds out how")
    column = rows.column("vector").combine_chunks()
    vectors: Vectors = np.asarray(column.flatten().to_numpy().reshape(rows.num_rows, column.type.list_size))
    # By column: rows of dicts take three times as long.
    columns = {name: rows.column(name).to_pylist() for name in _COLUMNS}
    columns["heading_path"] = [tuple(path) for path in columns["heading_path"]]
    return [Node(*fields) for fields in zip(*columns.values(), strict=True)], vectors


def _gaps(column: pa.ChunkedArray, name: str) -> bool:
    return column.null_count > 0 and name not in _MAY_BE_NULL
