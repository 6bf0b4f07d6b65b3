"""What marketplace crawls know between runs: rows listed, repositories looked at."""

from __future__ import annotations

from typing import Any

import polars as pl

from storage.partitions import PartitionedTable, partition_of
from storage.root import Root

_TIME = pl.Datetime("us", "UTC")

# One row of a list a source. `repository` is lower-case `owner/repo`, `ref` the first part of what follows
# /tree/ in its URL (empty: the default branch), `rest` what follows that. What looking brought: `doc_id`,
# `outcome` (`ok`, or why there is no document, null: not looked at yet), `digest` of the skill's files.
_LISTED: dict[str, Any] = {
    "repository": pl.String, "ref": pl.String, "rest": pl.String, "source": pl.String,
    "source_id": pl.String, "written": pl.String, "updated_at": _TIME, "stars": pl.Int64,
    "category": pl.String, "tags": pl.List(pl.String), "doc_id": pl.String, "outcome": pl.String,
    "digest": pl.String,
}  # fmt: skip
LISTED = pl.Schema(_LISTED)

# One row a repository, ref and source. `state` is `ok`, `refused` (its archive), `too-large`, `failed` (could
# not be looked at), `missing`, `denied`, `gone` (missed too often) or `withdrawn`; `listed` is the digest of
# its listed rows when it was last looked at; `misses` counts runs that missed it in a row.
_REPOSITORIES: dict[str, Any] = {
    "repository": pl.String, "ref": pl.String, "source": pl.String, "full_name": pl.String,
    "repo_id": pl.String, "licence": pl.String, "stars": pl.Int64, "commit": pl.String, "etag": pl.String,
    "etag_key": pl.String, "state": pl.String, "listed": pl.String, "checked_at": _TIME, "changed_at": _TIME,
    "misses": pl.Int32, "first_missed_at": _TIME, "last_missed_at": _TIME, "detail": pl.String,
}  # fmt: skip
REPOSITORIES = pl.Schema(_REPOSITORIES)

# An id that a list gives is lossy: two skills may share one. A place is one's own.
_KEYS = {"listed": ["source", "repository", "ref", "rest"], "repositories": ["source", "repository", "ref"]}


def listed_table(root: Root) -> PartitionedTable:
    """Return the rows of all lists, by repository."""
    return PartitionedTable(root, "state/listed", LISTED, key="repository")


def repositories_table(root: Root) -> PartitionedTable:
    """Return the repositories looked at."""
    return PartitionedTable(root, "state/repositories", REPOSITORIES, key="repository")


def upsert(table: PartitionedTable, rows: pl.DataFrame) -> None:
    """Put rows in place of those with the same key, which the table's name tells; the last of a key counts.

    Args:
        table: One of the two tables above.
        rows: Of its schema.
    """
    if rows.is_empty():
        return
    by = _KEYS[table.folder.rpartition("/")[2]]
    rows = rows.unique(by, keep="last", maintain_order=True)
    repositories = set(rows["repository"])
    held = table.read({partition_of(r) for r in repositories})
    others = held.filter(pl.col("repository").is_in(list(repositories))).join(rows, on=by, how="anti")
    table.replace(repositories, pl.concat([others, rows]))
