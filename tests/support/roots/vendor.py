"""The tables as LanceDB itself opens them, for tests that look at what was written, or spoil it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa

from storage.lance.tables import TableAt
from storage.root import Root

Injury = Callable[[lancedb.table.Table], None]


def connect(root: Root) -> lancedb.DBConnection:
    return lancedb.connect(root.at("lance"))


def open_at(db: lancedb.DBConnection, name: str, version: int) -> lancedb.table.Table:
    table = db.open_table(name)
    table.checkout(version)
    return table


def made_table(folder: Path, name: str, rows: pa.Table) -> TableAt:
    """Make a table of rows below a folder, and return it."""
    made = connect(Root(folder)).create_table(name, rows, on_bad_vectors="null")
    return TableAt(Root(folder), name, int(made.version))


def with_vectors(rows: pa.Table, vectors: np.ndarray) -> pa.Table:
    flat = pa.array(vectors.astype(np.float32).ravel())
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    at = rows.schema.get_field_index("vector")
    return rows.set_column(at, rows.schema.field("vector"), column)


def rewritten(change: Callable[[np.ndarray], np.ndarray]) -> Injury:
    """Return an injury that puts other vectors in place of a table's."""

    def injure(table: lancedb.table.Table) -> None:
        rows = table.search().to_arrow()
        vectors = rows.column("vector").combine_chunks().flatten().to_numpy().reshape(rows.num_rows, -1)
        table.delete("true")
        table.add(with_vectors(rows, change(vectors.copy())))
        table.optimize()

    return injure
