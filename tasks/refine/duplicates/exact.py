"""Exact duplicates: one document from several sources, and several documents with one text."""

from __future__ import annotations

import functools

import polars as pl

from tasks.crawl.source.identity import doc_key
from tasks.refine.text.rules import rules_data

# Prefixes of sources, nearest to the origin first: a repository's history, its archive, a copy in a file, ...
SOURCE_RANKS: tuple[tuple[str, ...], ...] = (
    ("git+", "sample"),
    ("github:", "skillsmp"),
    ("parquet:",),
    ("dir:",),
    ("mcp-registry", "awesome:"),  # a line on a repository's server must not hide a skill at its root
)
_NEAR = ("owner", "body_hash", "onto", "similarity")
_FOLDS = pl.Schema({
    "doc_id": pl.String, "survivor": pl.String, "similarity": pl.Float64, "reason": pl.String,
})  # fmt: skip


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


def owner_of() -> pl.Expr:
    """Return whose each document is: its owner on its forge, else what the source says of its author.

    Of columns doc_id, source, repo and author. A file may name anybody as the author, so that its source
    counts too. The owner of a repository that is kept apart is not who has had the name.
    """
    source, repo = pl.col("source"), pl.col("repo").str.to_lowercase()
    forge = pl.any_horizontal(source.str.starts_with(p) for p in ("git+", "github:", "skillsmp"))
    claimed = pl.concat_str(source, pl.lit("\n"), pl.col("author").fill_null(""))
    named = forge & ~repo.str.starts_with("local/")
    apart = pl.col("doc_id").str.to_lowercase().str.extract("^([^/]+/[^/]+~[0-9a-f]{6})(?:/|$)")
    return pl.when(named).then(pl.coalesce(apart, repo.str.replace("/[^/]*$", ""))).otherwise(claimed)


def ranked(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort documents so that of several copies the one to keep comes first; the order of rows does not count.

    Sorted by: not from an aggregator; first seen; source's rank; not in a hidden folder, where agents hold
    what was installed; repository known; licence known; most stars; the shortest path; doc_id in lower case,
    then as written. Unknown stars and times come last.
    """
    again = pl.col("repo").str.to_lowercase().str.contains(_aggregators()).fill_null(value=False)
    return frame.sort(
        again, "first_seen_at", _source_rank(pl.col("source")),
        pl.col("doc_id").str.contains("/.", literal=True), pl.col("repo").is_null(),
        pl.col("licence").is_null(), pl.col("stars").fill_null(-1).neg(),
        pl.col("doc_id").str.count_matches("/", literal=True), pl.col("doc_id").str.to_lowercase(), "doc_id",
        nulls_last=True,
    )  # fmt: skip


def texts_of(best_first: pl.DataFrame) -> pl.DataFrame:
    """Return the first document of each owner's body_hash, in order; a null is no text."""
    texts = best_first.drop_nulls("body_hash")
    return texts.unique(["owner", "body_hash"], keep="first", maintain_order=True)


def fold(documents: pl.DataFrame, near: pl.DataFrame) -> pl.DataFrame:
    """Fold each document onto the best one with its text, and with its files or its owner.

    A text that differs from a better one of its owner by little folds onto that one.

    Args:
        documents: Columns doc_id (unique), body_hash, bundle and owner, best first; a null is no text.
        near: Columns owner, body_hash, onto (a text of the owner that survives) and similarity.

    Returns:
        Columns doc_id, survivor (itself where kept), similarity (null where kept) and reason (`duplicate`,
        `near_duplicate`, null where kept): a row for each of `documents`, in their order.
    """
    like = {(owner, text): rest for owner, text, *rest in near.select(*_NEAR).iter_rows()}
    heads: dict[tuple[str, str], tuple[int, str]] = {}
    rows: list[tuple[str, str, float | None, str | None]] = []
    light = documents.select("doc_id", "body_hash", "bundle", "owner")
    for place, (doc_id, text, bundle, owner) in enumerate(light.iter_rows()):
        keys = [] if text is None else [(text, f"files {bundle}"), (text, f"owner {owner}")]
        onto, similarity = like.get((owner, text), (None, 0.0))
        if same := [heads[key] for key in keys if key in heads]:
            rows.append((doc_id, min(same)[1], 1.0, "duplicate"))
        elif better := heads.get((onto or "", f"owner {owner}")):
            rows.append((doc_id, better[1], similarity, "near_duplicate"))
        else:
            rows.append((doc_id, doc_id, None, None))
            heads |= dict.fromkeys(keys, (place, doc_id))
    return pl.DataFrame(rows, schema=_FOLDS, orient="row")


def preferred(frame: pl.DataFrame) -> pl.DataFrame:
    """Choose whose copy counts where several sources hold one document, by `doc_key`.

    Sorted by: the source's rank; seen last, so that a source no longer crawled does not hide a fresh one of
    its kind; the smallest source; the smallest id as written; the first row.

    Returns:
        Columns kept, lost_to and lost_to_source (null where kept): a row for each of `frame`, in its order.
    """
    rows = frame.select("doc_id", "source", "last_seen_at").with_row_index("row")
    keyed = rows.with_columns(key=pl.Series([doc_key(doc_id) for doc_id in rows["doc_id"]], dtype=pl.String))
    order = [_source_rank(pl.col("source")), "last_seen_at", "source", "doc_id", "row"]
    best = keyed.sort(order, descending=[False, True, False, False, False], nulls_last=True)
    best = best.unique("key", keep="first", maintain_order=True)
    best = best.select("key", best="row", lost_to="doc_id", lost_to_source="source")
    joined = keyed.join(best, on="key", how="left", maintain_order="left")
    lost = pl.when(pl.col("row") != pl.col("best"))
    outcome = {"lost_to": lost.then("lost_to"), "lost_to_source": lost.then("lost_to_source")}
    return joined.select(kept=pl.col("row") == pl.col("best"), **outcome)
