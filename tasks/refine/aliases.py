"""Ids that lead to another document: copies to their survivor, retired ids to a document of the same text."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import polars as pl

from storage.partitions import PartitionedTable
from storage.state import ALIASES

_ROW = ("doc_id", "survivor", "kind")


def desired_aliases(
    known: pl.DataFrame, verdict: pl.DataFrame, gone: pl.DataFrame, again: Collection[str]
) -> pl.DataFrame:
    """Return the aliases there should be.

    Args:
        known: Aliases until now; all but those of copies stay while their id names no document.
        verdict: Columns doc_id, body_hash and survivor of every document of the corpus and every copy.
        gone: Columns doc_id and body_hash of documents that leave the corpus now.
        again: Documents that a source holds now, whether they are kept or dropped.

    Returns:
        Columns doc_id (unique), survivor and kind (`folded`, `retired` or what was known).
    """
    copies = verdict.filter(pl.col("survivor") != pl.col("doc_id"))
    texts = verdict.select("body_hash", "survivor").unique("body_hash")
    retired = gone.select("doc_id", "body_hash").join(texts, on="body_hash")
    taken = {*verdict["doc_id"], *retired["doc_id"], *again}
    carried = known.filter(pl.col("kind") != "folded", ~pl.col("doc_id").is_in(list(taken)))
    return pl.concat([
        copies.select("doc_id", "survivor", kind=pl.lit("folded")),
        retired.select("doc_id", "survivor", kind=pl.lit("retired")),
        carried.select(_ROW),
    ])  # fmt: skip


def write_aliases(
    table: PartitionedTable, desired: pl.DataFrame, now: datetime, *, but: Collection[str] = ()
) -> None:
    """Make the table hold what is desired; a row that stays keeps its `since`, an id among `but` its row."""
    known = table.read()
    new = desired.join(known, on=_ROW, how="anti")
    over = known.join(desired, on=_ROW, how="anti")
    held_back = {*known["doc_id"]} & {*but}
    rows = new.filter(~pl.col("doc_id").is_in(list(held_back))).with_columns(since=pl.lit(now))
    table.replace({*new["doc_id"], *over["doc_id"]} - held_back, rows.cast(ALIASES))
