"""Counts of what a version holds: size, documents dropped by reason, nodes by classifier and by type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from storage.lance.served import Served
from storage.lance.tables import INDUCED, NODES, TableAt
from storage.root import Root
from storage.state import corpus_counts, nodes_table
from tasks.evaluate.health.probes import history_row
from tasks.retrieve.suggest.stored import SKILL


def count_rows(root: Root, served: Served, dropped: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the counts of a version as rows of the history, in a stable order.

    Args:
        root: Where the tables lie.
        served: The version.
        dropped: Documents that the version's run left out, by reason.

    Returns:
        `size` (rows and bytes of each table that is served, and the number of learned skills), `dropped`
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
