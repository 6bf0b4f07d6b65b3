"""Exact duplicates: one document from several sources, and several documents with one text."""

from __future__ import annotations

import functools

import polars as pl

from tasks.refine.text.rules import rules_data

# Prefixes of sources, nearest to the origin first: a repository's history, its archive, a copy in a file, ...
SOURCE_RANKS: tuple[tuple[str, ...], ...] = (
    ("git+", "sample"),
    ("github:", "skillsmp"),
    ("parquet:",),
    ("dir:",),
    ("mcp-registry", "awesome:"),  # a line on a repository's server must not hide a skill at its root
)


def _source_rank(source: pl.Expr) -> pl.Expr:
    """Return each source's rank, 0 for the best; unknown sources come last."""
    rank = pl.lit(len(SOURCE_RANKS), dtype=pl.UInt8)
    for place, prefixes in reversed(list(enumerate(SOURCE_RANKS))):
        known = pl.any_horizontal(source.str.starts_with(prefix) for prefix in prefixes)
        rank = pl.when(known).then(pl.lit(place, dtype=pl.UInt8)).otherwise(rank)
    return rank


@functools.cache
def _aggregators() -> str:
    """Return the pattern of repositories that publish others' skills again, in lower case."""
    return "^(?:" + "|".join(rules_data("aggregators.yaml")["repositories"]) + ")$"


def ranked(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort documents so that of several copies the one to keep comes first; the order of rows does not count.

    Sorted by: not from an aggregator; the source's rank; repository known; licence known; most stars; first
    seen; doc_id in lower case, then as written. Unknown stars and times come last.

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
    """Return the first document of each body_hash, in order; a null is no text."""
    return best_first.drop_nulls("body_hash").unique("body_hash", keep="first", maintain_order=True)


def fold(texts: pl.DataFrame, near: pl.DataFrame, documents: pl.DataFrame) -> pl.DataFrame:
    """Fold the copies of a text onto its best document, and near-duplicates onto their survivor.

    Args:
        texts: Columns doc_id and body_hash, the best document of each text.
        near: Columns body_hash, onto (a text that survives) and similarity.
        documents: Columns doc_id (unique) and body_hash; a row with null is never folded.

    Returns:
        Columns doc_id, survivor (itself where kept), similarity (null where kept) and reason (`duplicate`,
        `near_duplicate`, null where kept): a row for each of `documents`, in their order.
    """
    heads = texts.select("body_hash", head="doc_id")
    onto = near.join(heads.rename({"body_hash": "onto", "head": "near"}), on="onto").drop("onto")
    joined = (
        documents.select("doc_id", "body_hash")
        .join(heads, on="body_hash", how="left", maintain_order="left")
        .join(onto, on="body_hash", how="left", maintain_order="left")
        .with_columns(survivor=pl.coalesce("near", "head", "doc_id"))
    )
    folded = pl.col("survivor") != pl.col("doc_id")
    near_or_not = pl.when(pl.col("near").is_not_null()).then(pl.lit("near_duplicate"))
    return joined.select(
        "doc_id",
        "survivor",
        similarity=pl.when(folded).then(pl.coalesce("similarity", pl.lit(1.0))),
        reason=near_or_not.when(folded).then(pl.lit("duplicate")),
    )


def preferred(frame: pl.DataFrame) -> pl.DataFrame:
    """Choose whose copy counts where several sources hold one document; ids are compared in lower case.

    Sorted by: the source's rank; seen last, so that a source no longer crawled does not hide a fresh one of
    its kind; the smallest source; the smallest id as written; the first row.

    Args:
        frame: Columns doc_id, source and last_seen_at; others are ignored.

    Returns:
        Columns row (from 0), doc_id, source, kept, and lost_to and lost_to_source (null where kept): a row
        for each row of `frame`, in its order.
    """
    rows = frame.select("doc_id", "source", "last_seen_at").with_row_index("row")
    keyed = rows.with_columns(key=pl.col("doc_id").str.to_lowercase())
    order = [_source_rank(pl.col("source")), "last_seen_at", "source", "doc_id", "row"]
    best = keyed.sort(order, descending=[False, True, False, False, False], nulls_last=True)
    best = best.unique("key", keep="first", maintain_order=True)
    best = best.select("key", best="row", lost_to="doc_id", lost_to_source="source")
    joined = keyed.join(best, on="key", how="left", maintain_order="left")
    lost = pl.when(pl.col("row") != pl.col("best"))
    return joined.select(
        "row",
        "doc_id",
        "source",
        kept=pl.col("row") == pl.col("best"),
        lost_to=lost.then("lost_to"),
        lost_to_source=lost.then("lost_to_source"),
    )
