"""What a root holds and serves."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from storage.root import Root
from storage.served import read_served
from storage.state import (
    documents_table,
    folded_table,
    parsed_table,
    read_runs,
    read_sources,
    refined_table,
    seen_table,
)


def root_status(root: Root) -> dict[str, Any]:
    """Return what `skillery status` prints: version served, its age, counts, sources, runs, drop reasons."""
    served = read_served(root)
    age = None if served is None else (datetime.now(UTC) - served.published_at).total_seconds() / 3600
    parsed = parsed_table(root).read(columns=["n_nodes", "n_edges"])
    seen = seen_table(root).read(columns=["stale_since", "retired_at"])
    folded = folded_table(root).read(columns=["doc_id"]).height
    outcomes = Counter(refined_table(root).read(columns=["outcome"])["outcome"])
    dropped = {reason: n for reason, n in sorted(outcomes.items()) if reason != "kept"}
    sources = [
        {"source": spec, **{k: r.get(k) for k in ("state", "last_complete", "stale_since")}}
        for spec, r in read_sources(root).items()
    ]
    runs = [{k: r[k] for k in ("run_id", "state", "published", "seconds")} for r in read_runs(root)]
    return {
        "served": served.version if served else None,
        "published_at": served.published_at.isoformat() if served else None,
        "age_hours": None if age is None else round(age, 3),
        "counts": {
            "documents": documents_table(root).read(columns=["doc_id"]).height,
            "nodes": int(parsed["n_nodes"].sum()),
            "edges": int(parsed["n_edges"].sum()),
            "stale": seen["stale_since"].drop_nulls().len(),
            "retired": seen["retired_at"].drop_nulls().len(),
        },
        "sources": sources,
        "runs": runs,
        "dropped": {**dropped, **({"duplicate": folded} if folded else {})},
    }
