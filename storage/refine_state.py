"""What refine remembers of texts between runs, so that a night costs what changed; it can be made anew."""

from __future__ import annotations

import polars as pl

from storage.partitions import PartitionedTable
from storage.root import Root

# `rule` says how a row was made, another rule's rows are made again; `size` counts distinct shingles;
# `bands` holds little-endian 32-bit numbers, empty for a text too short to have shingles.
SIGNATURES = pl.Schema({
    "body_hash": pl.String, "rule": pl.String, "size": pl.Int32, "bands": pl.Binary,
})  # fmt: skip
# Pairs of texts compared on their true shingles, near or not; `body_hash` is the smaller of the two.
COMPARED = pl.Schema({
    "body_hash": pl.String, "other": pl.String, "rule": pl.String, "similarity": pl.Float64,
})  # fmt: skip


def signatures_table(root: Root) -> PartitionedTable:
    """Return the table of texts' signatures."""
    return PartitionedTable(root, "state/signatures", SIGNATURES, key="body_hash")


def compared_table(root: Root) -> PartitionedTable:
    """Return the table of texts compared, with their similarity."""
    return PartitionedTable(root, "state/near", COMPARED, key="body_hash")
