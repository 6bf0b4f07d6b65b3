"""The evaluation history: one row a probe, leg, measure and evaluation; counts of what a version holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import polars as pl

from storage.errors import SchemaMismatch, StorageError
from storage.lance.served import Served
from storage.lance.tables import INDUCED, NODES, SKILL, TableAt
from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.state import corpus_counts, nodes_table
from tasks.evaluate.health.probes import history_row

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
    """Add the rows of one evaluation of a version, and return their file, relative to the root."""
    records = [{**row, "evaluated_at": now, "version": version} for row in rows]
    file = f"{HISTORY}/{now:%Y%m%dT%H%M%S%f}-{version}.parquet"
    write_frame(root, file, pl.DataFrame(records, schema=SCHEMA), SCHEMA)
    return file


def count_rows(root: Root, served: Served, dropped: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the counts of a version as rows of the history, in a stable order.

    They are `size` (rows and bytes of each table that is served, and the number of learned skills), `dropped`
    (documents a reason), `classifier mix` and `node type mix` (shares of the nodes, 0 to 1; of the corpus
    where no nodes are served).
    """
    rows: list[dict[str, Any]] = []
    nodes: pl.DataFrame | None = None
    for name, version in served.tables().items():
        table = TableAt(root, name, version)
        rows += [history_row("size", name, "rows", float(table.count()))]
        rows += [history_row("size", name, "bytes", float(table.size()[0]))]
        if name == INDUCED:
            learned = table.count(kind=[SKILL])  # it holds runs and states too
            rows += [history_row("size", "learned skills", "rows", float(learned))]
        if name == NODES:
            nodes = table.frame(["classifier", "node_type"])
    rows += [history_row("dropped", reason, "documents", float(n)) for reason, n in sorted(dropped.items())]
    columns = ["classifier", "node_type"]
    typed = nodes_table(root).read(columns=columns) if nodes is None else nodes
    return [
        *rows,
        *_shares("classifier mix", typed["classifier"]),
        *_shares("node type mix", typed["node_type"]),
    ]


def dropped_of(root: Root, served: Served) -> dict[str, int]:
    """Return how many documents are in none of a version's tables, by reason, as its run counted them.

    Compaction, forgetting and a backfill publish without a run's record: for these the root is counted now.
    """
    record = root.read_json(f"state/runs/{served.run_id}.json")
    return corpus_counts(root).dropped if record is None else dict(record.get("dropped") or {})


def _shares(mix: str, values: pl.Series) -> list[dict[str, Any]]:
    counts = values.value_counts(sort=True, name="n").sort(values.name)
    total = int(counts["n"].sum())
    return [history_row(mix, v, "share", n / total, queries=total) for v, n in counts.iter_rows()]
