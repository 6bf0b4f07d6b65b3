"""The tables as LanceDB itself opens them, for tests that look at what was written, or spoil it."""

from __future__ import annotations

import lancedb

from storage.root import Root


def connect(root: Root) -> lancedb.DBConnection:
    return lancedb.connect(root.at("lance"))


def open_at(db: lancedb.DBConnection, name: str, version: int) -> lancedb.table.Table:
    table = db.open_table(name)
    table.checkout(version)
    return table
