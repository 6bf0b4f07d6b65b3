"""What is known between runs: documents seen, refined and parsed, sources, runs, aliases."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.partitions import PartitionedTable
from storage.root import Root
from storage.schemas import DOCUMENTS, DROPPED, EDGES, NODES

_TIME = pl.Datetime("us", "UTC")

# One row a document and source: no text, so that an unchanged night rewrites none.
_SEEN: dict[str, Any] = {
    "doc_id": pl.String, "source": pl.String, "digest": pl.String, "raw_part": pl.String,
    "first_seen_at": _TIME, "last_seen_at": _TIME, "stale_since": _TIME, "retired_at": _TIME,
}  # fmt: skip
SEEN = pl.Schema(_SEEN)
# What refine made of a document of a source: `outcome` is `kept`, the reason it was dropped for, or
# `pending` where a run died in between.
REFINED = pl.Schema({
    "doc_id": pl.String, "source": pl.String, "digest": pl.String, "outcome": pl.String,
})  # fmt: skip
PARSED = pl.Schema({"doc_id": pl.String, "digest": pl.String, "n_nodes": pl.Int32, "n_edges": pl.Int32})
_ALIASES: dict[str, Any] = {
    "doc_id": pl.String, "survivor": pl.String, "kind": pl.String, "since": _TIME,
}  # fmt: skip
ALIASES = pl.Schema(_ALIASES)
# The names that runs are given sort by time, so that the last are known unread; a person may give any other.
_BY_TIME = re.compile(r"/\d{8}T\d{6}-[0-9a-f]{6}\.json$")


def seen_table(root: Root) -> PartitionedTable:
    """Return the table of documents seen, by source."""
    return PartitionedTable(root, "state/seen", SEEN)


def refined_table(root: Root) -> PartitionedTable:
    """Return the table of refine's verdicts."""
    return PartitionedTable(root, "state/refined", REFINED)


def documents_table(root: Root) -> PartitionedTable:
    """Return the corpus: one row a document that survived."""
    return PartitionedTable(root, "documents", DOCUMENTS)


def folded_table(root: Root) -> PartitionedTable:
    """Return the documents that are copies of another: they come back when their survivor goes."""
    return PartitionedTable(root, "state/folded", DOCUMENTS)


def parsed_table(root: Root) -> PartitionedTable:
    """Return the table of what has been parsed, by digest."""
    return PartitionedTable(root, "state/parsed", PARSED)


def nodes_table(root: Root) -> PartitionedTable:
    """Return the nodes of the corpus."""
    return PartitionedTable(root, "nodes", NODES)


def edges_table(root: Root) -> PartitionedTable:
    """Return the edges of the corpus."""
    return PartitionedTable(root, "edges", EDGES, key="src_id", node_key=True)


def aliases_table(root: Root) -> PartitionedTable:
    """Return folded, renamed and retired ids with the document that stands for them."""
    return PartitionedTable(root, "state/aliases", ALIASES)


def append_dropped(root: Root, run_id: str, rows: pl.DataFrame) -> None:
    """Add rows to the run's file of dropped documents, each once; no rows make no file."""
    if rows.is_empty():
        return
    relative = f"dropped/{run_id}.parquet"
    if root.exists(relative):
        rows = pl.concat([read_frame(root, relative, DROPPED), rows])
    write_frame(root, relative, rows.unique(maintain_order=True), DROPPED)


def read_sources(root: Root) -> dict[str, dict[str, Any]]:
    """Return what is remembered of each source, by spec."""
    record = root.read_json("state/sources.json") or {}
    return dict(record.get("sources", {}))


def write_source(root: Root, spec: str, record: dict[str, Any]) -> None:
    """Remember one source's record."""
    root.write_json("state/sources.json", {"sources": {**read_sources(root), spec: record}})


def read_runs(root: Root, last: int = 10) -> list[dict[str, Any]]:
    """Return the records of the last runs, by when they began, newest first."""
    files = sorted(root.files("state/runs", ".json"), reverse=True)
    timed = [f for f in files if _BY_TIME.search(f)][:last]
    records = root.each(root.read_json, [*timed, *(f for f in files if not _BY_TIME.search(f))])
    known = [record for record in records if record is not None]
    return sorted(known, key=lambda r: (r.get("started_at") or "", r["run_id"]), reverse=True)[:last]


def read_run(root: Root, run_id: str) -> dict[str, Any] | None:
    """Return the record of one run, None where there is none."""
    return root.read_json(f"state/runs/{run_id}.json")


def write_run(root: Root, record: dict[str, Any]) -> None:
    """Keep one run's record under its `run_id`."""
    root.write_json(f"state/runs/{record['run_id']}.json", record)
