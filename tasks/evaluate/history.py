"""The evaluation history: one row a probe, leg, measure and evaluation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root

HISTORY = "reports/evaluation.parquet"
_COLUMNS: dict[str, Any] = {
    "evaluated_at": pl.Datetime("us", "UTC"), "version": pl.String, "probe": pl.String, "leg": pl.String,
    "queries": pl.Int64, "measure": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64,
}  # fmt: skip
SCHEMA = pl.Schema(_COLUMNS)


def read_history(root: Root) -> pl.DataFrame:
    """Return the history, oldest evaluation first; no rows where nothing has been evaluated."""
    return read_frame(root, HISTORY, SCHEMA) if root.exists(HISTORY) else pl.DataFrame(schema=SCHEMA)


def append_history(root: Root, version: str, rows: list[dict[str, Any]], *, now: datetime) -> str:
    """Add one evaluation's rows and return the history's file, relative to the root.

    Args:
        root: Where the history lies.
        version: The version that was evaluated.
        rows: Rows with probe, leg, queries, measure, value, low and high (both None where there are none).
        now: When it was evaluated.
    """
    records = [{**row, "evaluated_at": now, "version": version} for row in rows]
    frame = pl.concat([read_history(root), pl.DataFrame(records, schema=SCHEMA)])
    write_frame(root, HISTORY, frame, SCHEMA)
    return HISTORY
