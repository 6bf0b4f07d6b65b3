"""The evaluation history: one row a probe, leg, measure and evaluation."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import polars as pl

from storage.errors import SchemaMismatch, StorageError
from storage.parquet import read_frame, write_frame
from storage.root import Root

# A file an evaluation: two at once lose nothing of each other, and a damaged file takes one with it.
HISTORY = "reports/evaluations"
LATENCY = "latency"  # the probe that measures how long answers take
_AS_ONE_FILE = "reports/evaluation.parquet"  # how the history lay before
_COLUMNS: dict[str, Any] = {
    "evaluated_at": pl.Datetime("us", "UTC"), "version": pl.String, "probe": pl.String, "leg": pl.String,
    "queries": pl.Int64, "measure": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64,
}  # fmt: skip
SCHEMA = pl.Schema(_COLUMNS)
log = logging.getLogger(__name__)


def read_history(root: Root) -> pl.DataFrame:
    """Return the history, oldest evaluation first; no rows where nothing has been evaluated.

    A file that cannot be read is logged and left out: an evaluation is not to fail for an older one's file.

    Raises:
        SchemaMismatch: A newer version of Skillery wrote a file.
    """
    earlier = [_AS_ONE_FILE] if root.exists(_AS_ONE_FILE) else []
    frames = root.each(lambda file: _read(root, file), [*earlier, *root.files(HISTORY, ".parquet")])
    history = pl.concat([pl.DataFrame(schema=SCHEMA), *(f for f in frames if f is not None)])
    return history.sort("evaluated_at", maintain_order=True)


def _read(root: Root, file: str) -> pl.DataFrame | None:
    try:
        return read_frame(root, file, SCHEMA)
    except SchemaMismatch:
        raise
    except StorageError as error:
        log.warning("%s: left out of the history; `skillery doctor` sets it aside", error)
        return None


def append_history(root: Root, version: str, rows: list[dict[str, Any]], *, now: datetime) -> str:
    """Add one evaluation's rows and return their file, relative to the root.

    Args:
        root: Where the history lies.
        version: The version that was evaluated.
        rows: Rows with probe, leg, queries, measure, value, low and high (both None where there are none).
        now: When it was evaluated.
    """
    records = [{**row, "evaluated_at": now, "version": version} for row in rows]
    file = f"{HISTORY}/{now:%Y%m%dT%H%M%S%f}-{version}.parquet"
    write_frame(root, file, pl.DataFrame(records, schema=SCHEMA), SCHEMA)
    return file
