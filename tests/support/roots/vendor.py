"""The tables as LanceDB itself opens them, for tests that look at what was written, or spoil it."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa

from storage.lance.tables import TableAt
from storage.root import Root


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
