"""Exact duplicates: one document from several sources, and several documents with one text."""

from __future__ import annotations

import functools

import polars as pl

from tasks.refine.text.rules import rules_data

# Where a text is nearest to its origin: a repository's history, its archive, a copy in a file, a folder.
SOURCE_RANKS: tuple[tuple[str, ...], ...] = (
    ("git+", "sample"),
    ("github:", "skillsmp"),
    ("parquet:",),
    ("dir:",),
    ("mcp-registry", "awesome:"),  # a line on a repository's server must not hide a skill at its root
)


def _source_rank(source: pl.Expr) -> pl.Expr:
    """Return each source's rank, 0 for the best; sources of no known kind come last."""
    rank = pl.lit(len(SOURCE_RANKS), dtype=pl.UInt8)
    for place, prefixes in reversed(list(enumerate(SOURCE_RANKS))):
        known = pl.any_horizontal(source.str.starts_with(prefix) for prefix in prefixes)
        rank = pl.when(known).then(pl.lit(place, dtype=pl.UInt8)).otherwise(rank)
    return rank


@functools.cache
def _aggregators() -> str:
    """Return one pattern of all repositories that publish others' skills again, lower-cased names in mind."""
    return "^(?:" + "|".join(rules_data("aggregators.yaml")["repositories"]) + ")$"


def ranked(frame: pl.DataFrame) -> pl.DataFrame:
    """Return documents with the one that is to stand for its likes first.

    What is not from a repository known to publish others' skills again stands first; then what comes from
    nearer to its origin (`SOURCE_RANKS`), of a known repository before none, with a known licence before
    none, then by most stars, first seen, smallest doc_id (lower-cased, then as written); unknown stars and
    times come last. The order of rows has no influence.

    Args:
        frame: Columns doc_id (unique), source, repo, licence, stars and first_seen_at, among others.
    """
    again = pl.col("repo").str.to_lowercase().str.contains(_aggregators()).fill_null(value=False)
    return frame.sort(
        again,
        _source_rank(pl.col("source")),
        pl.col("repo").is_null(),
        pl.col("licence").is_null(),
        pl.col("stars").fill_null(-1).neg(),
        "first_seen_at",
        pl.col("doc_id").str.to_lowercase(),
        "doc_id",
        nulls_last=True,
    )


def texts_of(best_first: pl.DataFrame) -> pl.DataFrame:
    """Return the best document of each text, best first; documents without a body_hash have none.

    Args:
        best_first: Documents by rank, column body_hash among others.
    """
    texts = best_first.filter(pl.col("body_hash").is_not_null())
    return texts.unique("body_hash", keep="first", maintain_order=True)


def fold(texts: pl.DataFrame, near: pl.DataFrame, documents: pl.DataFrame) -> pl.DataFrame:
    """Fold copies of a text onto its best document, and texts onto the one that they are near to.

    Args:
        texts: Columns doc_id and body_hash, the best document of each text.
        near: Columns body_hash, onto (a text that folds onto none itself) and similarity.
        documents: Columns doc_id (unique) and body_hash; rows without one are never folded.

    Returns:
        Columns doc_id, survivor, similarity (null where kept) and reason (`duplicate`, `near_duplicate`, null
        where kept), a row for each of `documents` in their order; what is kept is its own survivor.
    """
    heads = texts.select("body_hash", head="doc_id")
    onto = near.join(heads.rename({"body_hash": "onto", "head": "near"}), on="onto").drop("onto")
    joined = (
        documents.select("doc_id", "body_hash")
        .join(heads, on="body_hash", how="left", maintain_order="left")
        .join(onto, on="body_hash", how="left", maintain_order="left")
        .with_columns(survivor=pl.coalesce("near", "head", "doc_id"))
    )
    kept = pl.col("survivor") == pl.col("doc_id")
    is_near = pl.col("near").is_not_null()
    return joined.select(
        "doc_id",
        "survivor",
        pl.when(~kept).then(pl.coalesce("similarity", pl.lit(1.0))).alias("similarity"),
        pl.when(is_near).then(pl.lit("near_duplicate")).when(~kept).then(pl.lit("duplicate")).alias("reason"),
    )


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
