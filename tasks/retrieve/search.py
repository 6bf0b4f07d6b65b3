"""Routing: which skills fit a task, by dense and lexical rank together."""

from __future__ import annotations

from typing import Any

import lancedb
import pyarrow as pa

from storage.lance import quoted
from storage.licences import Licences
from tasks.models.protocols import Vectors
from tasks.retrieve.fuse import reciprocal_rank_fusion

_FETCH = 100  # candidates of each leg
_COLUMNS = [
    "doc_id", "kind", "name", "description", "source", "url", "commit", "content_hash", "licence", "risks",
    "stale",
]  # fmt: skip


def rank_dense(
    skills: lancedb.table.Table, vector: Vectors, fetch_k: int = _FETCH, *, where: str | None = None
) -> list[str]:
    """Return the ids of the skills whose name and description are nearest by cosine, best first.

    Args:
        skills: The table at the version served.
        vector: The query's unit vector.
        fetch_k: At most so many.
        where: An SQL condition; rows that do not meet it are never candidates.
    """
    nearest: Any = skills.search(vector)
    found = _only(nearest.distance_type("dot"), where).limit(fetch_k).select(["doc_id", "_distance"])
    return _in_order(found.to_arrow(), "_distance", "ascending")


def rank_lexical(
    skills: lancedb.table.Table, query: str, fetch_k: int = _FETCH, *, where: str | None = None
) -> list[str]:
    """Return the ids of the skills that match best by BM25 over the full text, best first.

    Arguments are as those of `rank_dense`.
    """
    found = _only(skills.search(query, query_type="fts", fts_columns="text"), where).limit(fetch_k)
    return _in_order(found.select(["doc_id", "_score"]).to_arrow(), "_score", "descending")


def _only(asked: Any, where: str | None) -> Any:  # noqa: ANN401 (LanceDB's builders have no common type)
    return asked if where is None else asked.where(where, prefilter=True)


def not_denied(licences: Licences) -> str | None:
    """Return the SQL condition of rows that the licence policy does not deny, None where it denies none."""
    denied = sorted(licence for licence, found in licences.classes.items() if found == "deny")
    listed = f"licence NOT IN ({quoted(denied)})"
    if licences.unknown == "deny":
        return f"licence IS NOT NULL AND {listed}" if denied else "licence IS NOT NULL"
    return f"(licence IS NULL OR {listed})" if denied else None


def _in_order(found: pa.Table, by: str, order: str) -> list[str]:
    """Return ids best first, ties by id: LanceDB lists ties in an order that differs from build to build."""
    rows = found.sort_by([(by, order), ("doc_id", "ascending")])
    return [str(d) for d in rows.column("doc_id").to_pylist()]


def search_skills(
    skills: lancedb.table.Table,
    query: str,
    vector: Vectors,
    *,
    k: int,
    fetch_k: int = _FETCH,
    where: str | None = None,
) -> list[tuple[dict[str, Any], float]]:
    """Return the `k` best skills with their fused scores, best first (reciprocal rank fusion).

    Args:
        skills: The table at the version served.
        query: The task.
        vector: Its unit vector.
        k: How many skills are wanted.
        fetch_k: Candidates of each leg; at least `k` are taken.
        where: An SQL condition; what does not meet it takes no place in either leg.
    """
    depth = min(max(k, fetch_k), skills.count_rows())
    if not depth:
        return []
    legs = [
        rank_dense(skills, vector, depth, where=where),
        rank_lexical(skills, query, depth, where=where),
    ]
    fused = reciprocal_rank_fusion(legs)[:k]
    chosen = f"doc_id IN ({quoted([d for d, _ in fused])})"
    rows = skills.search().where(chosen).select(_COLUMNS).to_arrow().to_pylist() if fused else []
    by_id = {row["doc_id"]: row for row in rows}
    return [(by_id[d], score) for d, score in fused]
