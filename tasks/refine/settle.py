"""Brings the corpus in line with what this run refined: folds, retires, records what was dropped."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.partitions import PartitionedTable, partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS, DROPPED
from storage.state import (
    ALIASES,
    REFINED,
    aliases_table,
    documents_table,
    folded_table,
    refined_table,
)
from tasks.refine.duplicates import fold
from tasks.refine.plan import STAGED, STAGED_DROPPED, read_plan

_LIGHT = ("doc_id", "source", "body_hash", "content_hash", "stars", "first_seen_at", "licence")


def settle(root: Root, *, run_id: str, now: datetime) -> dict[str, int]:
    """Put staged documents in place, fold exact duplicates, retire what is gone; return what the corpus is.

    A copy stays beside the corpus and returns to it when its survivor goes. A run that dies in here is done
    again by the next one, with the same result: nothing leaves one table before it is in the other.

    Returns:
        `documents`, and each reason with the number of documents that are dropped for it now.
    """
    plan = read_plan(root)
    staged, dropped = _staged(root, STAGED, DOCUMENTS), _staged(root, STAGED_DROPPED, DROPPED)
    replaced = set(plan.filter(pl.col("action") != "lose")["doc_id"])
    served, beside = _light(documents_table(root)), _light(folded_table(root))
    both = set(served["doc_id"]) & set(beside["doc_id"])
    held = pl.concat([served, beside]).unique("doc_id").filter(~pl.col("doc_id").is_in(list(replaced)))
    light = pl.concat([held, staged.select(_LIGHT)])
    verdict = fold(light).join(light, on="doc_id")
    folded = verdict.filter(pl.col("survivor") != pl.col("doc_id"))
    was_folded, now_folded = set(beside["doc_id"]), set(folded["doc_id"])
    moved = ((was_folded ^ now_folded) | both) - replaced
    _place(root, staged, replaced, moved, now_folded)
    _alias(root, verdict, _gone(plan, served), now)
    newly = folded.filter(~pl.col("doc_id").is_in(list(was_folded - replaced)))
    _record_dropped(root, run_id, [dropped, _duplicates(newly), _departures(plan)])
    refined = _record_refined(root, plan, staged, dropped)
    for folder in (STAGED, STAGED_DROPPED):
        root.delete(folder)
    reasons = refined.filter(pl.col("outcome") != "kept").group_by("outcome").len().sort("outcome")
    counts = {"documents": verdict.height - folded.height, **dict(reasons.iter_rows())}
    return {**counts, "duplicate": folded.height} if folded.height else counts


def _staged(root: Root, folder: str, schema: pl.Schema) -> pl.DataFrame:
    frames = [read_frame(root, f, schema) for f in root.files(folder, ".parquet")]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def _light(table: PartitionedTable) -> pl.DataFrame:
    return table.read(columns=_LIGHT).select(_LIGHT)


def _gone(plan: pl.DataFrame, served: pl.DataFrame) -> pl.DataFrame:
    removed = plan.filter(pl.col("action") == "remove").select("doc_id")
    return served.join(removed, on="doc_id", how="semi")


def _place(
    root: Root, staged: pl.DataFrame, replaced: set[str], moved: set[str], now_folded: set[str]
) -> None:
    """Rewrite the partitions that `replaced` and `moved` lie in: arrivals first, departures after."""
    documents, folded = documents_table(root), folded_table(root)
    by_partition: dict[int, set[str]] = {}
    for doc_id in replaced | moved:
        by_partition.setdefault(partition_of(doc_id), set()).add(doc_id)
    for partition, ids in sorted(by_partition.items()):
        old = pl.concat([documents.read([partition]), folded.read([partition])]).unique("doc_id")
        rows = pl.concat(
            [
                staged.filter(pl.col("doc_id").is_in(list(ids))),
                old.filter(pl.col("doc_id").is_in(list(ids & moved))),
            ]
        )
        copies = rows["doc_id"].is_in(list(now_folded))
        folded.replace(ids & now_folded, rows.filter(copies))
        documents.replace(ids, rows.filter(~copies))
        folded.replace(ids - now_folded, rows.clear())


def _alias(root: Root, verdict: pl.DataFrame, gone: pl.DataFrame, now: datetime) -> None:
    """Let folded ids lead to their survivor, and retired ids to a document with the same text."""
    copies = verdict.filter(pl.col("survivor") != pl.col("doc_id")).select("doc_id", "survivor")
    texts = verdict.select("body_hash", "survivor").unique("body_hash")
    retired = gone.join(texts, on="body_hash").select("doc_id", "survivor")
    rows = pl.concat([
        copies.with_columns(kind=pl.lit("folded")), retired.with_columns(kind=pl.lit("retired"))
    ])  # fmt: skip
    table = aliases_table(root)
    known = table.read()
    new = rows.join(known, on=["doc_id", "survivor", "kind"], how="anti")
    back = set(known["doc_id"]) & set(verdict["doc_id"]) - set(copies["doc_id"])
    table.replace(set(new["doc_id"]) | back, new.with_columns(since=pl.lit(now)).cast(ALIASES))


def _duplicates(newly: pl.DataFrame) -> pl.DataFrame:
    return newly.select(
        "doc_id", "source", "content_hash", lost_to="survivor", reason=pl.lit("duplicate"),
        rule=pl.lit("refine.exact"), detail=pl.lit("same body"), similarity=pl.lit(1.0),
    )  # fmt: skip


def _departures(plan: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each document that its source has no more, or that another source's copy beats."""
    removed = plan.filter(pl.col("action") == "remove").select(
        "doc_id", "source", reason=pl.lit("retired"), rule=pl.lit("refine.retired"),
        detail=pl.lit("its source was read to its end without it"),
    )  # fmt: skip
    lost = plan.filter(pl.col("action") == "lose").select(
        "doc_id", "source", "lost_to", reason=pl.lit("other_source"), rule=pl.lit("refine.preferred"),
        detail=pl.concat_str(pl.lit("the copy of "), "lost_to_source", pl.lit(" counts")),
    )  # fmt: skip
    return pl.concat([removed, lost], how="diagonal")


def _record_dropped(root: Root, run_id: str, frames: list[pl.DataFrame]) -> None:
    """Add what this run dropped to its file, once, also where a run that died had written some of it."""
    relative = f"dropped/{run_id}.parquet"
    rows = pl.concat([pl.DataFrame(schema=DROPPED), *frames], how="diagonal_relaxed")
    rows = rows.select(DROPPED.names()).with_columns(run_id=pl.lit(run_id))
    if root.exists(relative):
        rows = pl.concat([read_frame(root, relative, DROPPED), rows])
    write_frame(root, relative, rows.unique(maintain_order=True), DROPPED)


def _record_refined(
    root: Root, plan: pl.DataFrame, staged: pl.DataFrame, dropped: pl.DataFrame
) -> pl.DataFrame:
    outcomes = pl.concat([
        staged.select("doc_id", outcome=pl.lit("kept")), dropped.select("doc_id", outcome="reason")
    ])  # fmt: skip
    done = plan.filter(pl.col("action") == "refine").join(outcomes, on="doc_id")
    ids = set(plan.filter(pl.col("action") != "lose")["doc_id"])
    table = refined_table(root)
    table.replace(ids, done.select(REFINED.names()))
    return table.read()
