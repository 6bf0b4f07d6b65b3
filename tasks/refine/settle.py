"""Brings the corpus in line with what this run refined: folds, retires, records what was dropped."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from storage.parquet import read_frame
from storage.partitions import PartitionedTable, partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS, DROPPED
from storage.state import (
    REFINED,
    aliases_table,
    append_dropped,
    documents_table,
    folded_table,
    refined_table,
)
from tasks.refine.aliases import desired_aliases, write_aliases
from tasks.refine.duplicates import fold
from tasks.refine.plan import STAGED, STAGED_DROPPED, read_plan

_LIGHT = ("doc_id", "source", "body_hash", "content_hash", "stars", "first_seen_at", "licence")


def settle(root: Root, *, run_id: str, now: datetime) -> dict[str, int]:
    """Put staged documents in place, fold exact duplicates, retire what is gone; return what the corpus is.

    A copy stays beside the corpus and returns to it when its survivor goes. A run that dies in here is done
    again by the next one, with the same result: first the verdicts on what is replaced are called pending,
    last they are given; nothing leaves one table before it is in the other.

    Returns:
        `documents`, and each reason with the number of documents that are dropped for it now.
    """
    plan = read_plan(root)
    staged, dropped = _staged(root, STAGED, DOCUMENTS), _staged(root, STAGED_DROPPED, DROPPED)
    again = set(plan.filter(pl.col("action") == "refine")["doc_id"])
    replaced = again | set(plan.filter(pl.col("action") == "remove")["doc_id"])
    served, beside = _light(documents_table(root)), _light(folded_table(root))
    both = set(served["doc_id"]) & set(beside["doc_id"])
    held = pl.concat([served, beside]).unique("doc_id", maintain_order=True)
    light = pl.concat([held.filter(~pl.col("doc_id").is_in(list(replaced))), staged.select(_LIGHT)])
    verdict = fold(light).join(light, on="doc_id")
    folded = verdict.filter(pl.col("survivor") != pl.col("doc_id"))
    was_folded, now_folded = set(beside["doc_id"]), set(folded["doc_id"])
    newly = folded.filter(~pl.col("doc_id").is_in(list(was_folded - replaced)))
    _record_verdicts(root, plan, _pending(plan))
    frames = [pl.DataFrame(schema=DROPPED), dropped, _duplicates(newly), _departures(plan)]
    left_out = pl.concat(frames, how="diagonal_relaxed").with_columns(run_id=pl.lit(run_id))
    append_dropped(root, run_id, left_out.select(DROPPED.names()))
    gone = held.join(_retired(plan), on="doc_id", how="semi")
    aliases = aliases_table(root)
    write_aliases(aliases, desired_aliases(aliases.read(), verdict, gone, again), now)
    moved = ((was_folded ^ now_folded) | both) - replaced
    _place(root, staged, replaced, moved, now_folded)
    _record_verdicts(root, plan, _verdicts(plan, staged, dropped))
    for folder in (STAGED, STAGED_DROPPED):
        root.delete(folder)
    return _counts(root, verdict.height, folded.height)


def _counts(root: Root, texts: int, copies: int) -> dict[str, int]:
    outcomes = refined_table(root).read(columns=["outcome"])
    reasons = outcomes.filter(pl.col("outcome") != "kept").group_by("outcome").len().sort("outcome")
    counts = {"documents": texts - copies, **dict(reasons.iter_rows())}
    return {**counts, "duplicate": copies} if copies else counts


def _staged(root: Root, folder: str, schema: pl.Schema) -> pl.DataFrame:
    frames = [read_frame(root, f, schema) for f in root.files(folder, ".parquet")]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def _light(table: PartitionedTable) -> pl.DataFrame:
    return table.read(columns=_LIGHT).select(_LIGHT)


def _retired(plan: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of what no source has any more, in whatever letter case."""
    lost = plan.filter(pl.col("action") == "lose")
    return plan.filter(pl.col("action") == "remove").join(lost, on=["doc_id", "source"], how="anti")


def _place(
    root: Root, staged: pl.DataFrame, replaced: set[str], moved: set[str], now_folded: set[str]
) -> None:
    """Rewrite the partitions that `replaced` and `moved` lie in: arrivals first, departures after."""
    documents, folded = documents_table(root), folded_table(root)
    ids, rows = replaced | moved, staged
    for partition in sorted({partition_of(doc_id) for doc_id in moved}):
        old = pl.concat([documents.read([partition]), folded.read([partition])])
        rows = pl.concat([rows, old.filter(pl.col("doc_id").is_in(list(moved))).unique("doc_id")])
    copies = rows["doc_id"].is_in(list(now_folded))
    folded.replace(ids & now_folded, rows.filter(copies))
    documents.replace(ids, rows.filter(~copies))
    folded.replace(ids - now_folded, rows.clear())


def _duplicates(newly: pl.DataFrame) -> pl.DataFrame:
    return newly.select(
        "doc_id", "source", "content_hash", lost_to="survivor", reason=pl.lit("duplicate"),
        rule=pl.lit("refine.exact"), detail=pl.lit("same body"), similarity=pl.lit(1.0),
    )  # fmt: skip


def _departures(plan: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each document that no source has any more, or that another source's copy now beats."""
    removed = _retired(plan).select(
        "doc_id", "source", reason=pl.lit("retired"), rule=pl.lit("refine.retired"),
        detail=pl.lit("its source was read to its end without it"),
    )  # fmt: skip
    lost = plan.filter(pl.col("action") == "lose").select(
        "doc_id", "source", "lost_to", reason=pl.lit("other_source"), rule=pl.lit("refine.preferred"),
        detail=pl.concat_str(pl.lit("the copy of "), "lost_to_source", pl.lit(" counts")),
    )  # fmt: skip
    return pl.concat([removed, lost], how="diagonal")


def _pending(plan: pl.DataFrame) -> pl.DataFrame:
    """Return verdicts that the next run, should this one die, takes for none."""
    replaced = plan.filter(pl.col("action").is_in(["refine", "remove"])).select("doc_id", "source")
    return replaced.with_columns(digest=pl.lit(""), outcome=pl.lit("pending"))


def _verdicts(plan: pl.DataFrame, staged: pl.DataFrame, dropped: pl.DataFrame) -> pl.DataFrame:
    outcomes = pl.concat([
        staged.select("doc_id", outcome=pl.lit("kept")), dropped.select("doc_id", outcome="reason")
    ])  # fmt: skip
    done = plan.filter(pl.col("action") == "refine").join(outcomes, on="doc_id")
    lost = plan.filter(pl.col("action") == "lose").with_columns(outcome=pl.lit("other_source"))
    return pl.concat([done.select(REFINED.names()), lost.select(REFINED.names())])


def _record_verdicts(root: Root, plan: pl.DataFrame, verdicts: pl.DataFrame) -> None:
    """Replace the verdicts on the plan's documents, source by source."""
    table, ids = refined_table(root), set(plan["doc_id"])
    held = table.read({partition_of(doc_id) for doc_id in ids}).filter(pl.col("doc_id").is_in(list(ids)))
    others = held.join(plan, on=["doc_id", "source"], how="anti")
    table.replace(ids, pl.concat([others, verdicts]))
