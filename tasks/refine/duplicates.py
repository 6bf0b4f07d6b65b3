"""Duplicates: one document that several sources hold, and several documents that hold one text."""

from __future__ import annotations

import polars as pl

# Where a text is nearest to its origin: a repository's history, its archive, a copy in a file, a folder.
SOURCE_RANKS: tuple[tuple[str, ...], ...] = (
    ("git+", "sample"),
    ("github:", "skillsmp", "awesome:"),
    ("parquet:",),
    ("dir:",),
)


def _source_rank(source: pl.Expr) -> pl.Expr:
    """Return each source's rank, 0 for the best; sources of no known kind come last."""
    rank = pl.lit(len(SOURCE_RANKS), dtype=pl.UInt8)
    for place, prefixes in reversed(list(enumerate(SOURCE_RANKS))):
        known = pl.any_horizontal(source.str.starts_with(prefix) for prefix in prefixes)
        rank = pl.when(known).then(pl.lit(place, dtype=pl.UInt8)).otherwise(rank)
    return rank


def fold(frame: pl.DataFrame) -> pl.DataFrame:
    """Fold exact duplicates: documents of one `body_hash` onto one survivor, chosen by rule.

    The survivor has a known licence before none, then the most stars, then was seen first, then has the
    smallest doc_id (lower-cased, then as written); unknown stars and times come last. The order of rows
    has no influence. Rows without a body_hash are never folded.

    Args:
        frame: Columns doc_id (unique), body_hash, stars, first_seen_at and licence; others are ignored.

    Returns:
        Columns doc_id and survivor, a row for each row of `frame` in its order; a document that is kept is
        its own survivor.
    """
    ranked = frame.select("doc_id", "body_hash", "stars", "first_seen_at", "licence").sort(
        pl.col("licence").is_null(),
        pl.col("stars").fill_null(-1).neg(),
        "first_seen_at",
        pl.col("doc_id").str.to_lowercase(),
        "doc_id",
        nulls_last=True,
    )
    survivors = ranked.unique("body_hash", keep="first", maintain_order=True).select(
        "body_hash", survivor="doc_id"
    )
    folded = frame.select("doc_id", "body_hash").join(
        survivors, on="body_hash", how="left", maintain_order="left"
    )
    return folded.select("doc_id", pl.coalesce("survivor", "doc_id").alias("survivor"))


def preferred(frame: pl.DataFrame) -> pl.DataFrame:
    """Choose, where several sources hold one document, whose text counts; the others are listed, not lost.

    Ids are compared lower-cased. Git comes before archives, Parquet and folders; then what was seen last,
    so that a source no longer crawled does not hide a fresh one of its kind, the smaller source, the smaller
    id as written and the earlier row.

    Args:
        frame: Columns doc_id, source and last_seen_at; others are ignored.

    Returns:
        Columns row (from 0), doc_id, source, kept, and lost_to and lost_to_source (null where kept): a row
        for each row of `frame`, in its order.
    """
    rows = frame.select("doc_id", "source", "last_seen_at").with_row_index("row")
    keyed = rows.with_columns(key=pl.col("doc_id").str.to_lowercase())
    best = (
        keyed.sort(
            _source_rank(pl.col("source")),
            "last_seen_at",
            "source",
            "doc_id",
            "row",
            descending=[False, True, False, False, False],
            nulls_last=True,
        )
        .unique("key", keep="first", maintain_order=True)
        .select("key", best="row", lost_to="doc_id", lost_to_source="source")
    )
    joined = keyed.join(best, on="key", how="left", maintain_order="left").with_columns(
        kept=pl.col("row") == pl.col("best")
    )
    lost = ~pl.col("kept")
    return joined.select(
        "row",
        "doc_id",
        "source",
        "kept",
        pl.when(lost).then("lost_to").alias("lost_to"),
        pl.when(lost).then("lost_to_source").alias("lost_to_source"),
    )
