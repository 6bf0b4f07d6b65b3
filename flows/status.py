"""What a root holds and serves."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from storage.counts import corpus_counts
from storage.licences import CLASSES, read_licences
from storage.root import Root
from storage.served import read_served
from storage.state import documents_table, read_runs, read_sources, seen_table

# What is told of a source: when it was whole, and what its last reading brought and cost.
_OF_A_SOURCE = (
    "state", "last_complete", "stale_since", "listed", "new", "changed", "unchanged", "retired", "withdrawn",
    "failed", "requests", "quota_left",
)  # fmt: skip


def root_status(root: Root) -> dict[str, Any]:
    """Return what `skillery status` prints: version served, its age, counts, sources, runs, drop reasons."""
    served = read_served(root)
    age = None if served is None else (datetime.now(UTC) - served.published_at).total_seconds() / 3600
    counts = corpus_counts(root)
    seen = seen_table(root).read(columns=["stale_since", "retired_at"])
    sources = [
        {"source": spec, **{k: r.get(k) for k in _OF_A_SOURCE}} for spec, r in read_sources(root).items()
    ]
    runs = [
        {"flow": r.get("flow", "nightly"), **{k: r[k] for k in ("run_id", "state", "published", "seconds")}}
        for r in read_runs(root)
    ]
    return {
        "served": served.version if served else None,
        "published_at": served.published_at.isoformat() if served else None,
        "age_hours": None if age is None else round(age, 3),
        "counts": {
            "documents": counts.documents,
            "nodes": counts.nodes,
            "edges": counts.edges,
            "stale": seen["stale_since"].drop_nulls().len(),
            "retired": seen["retired_at"].drop_nulls().len(),
        },
        "sources": sources,
        "runs": runs,
        "dropped": counts.dropped,
        "licences": _by_licence_class(root),
    }


def _by_licence_class(root: Root) -> dict[str, int]:
    """Count documents by what their licence allows; those no run has classed yet are `unclassed`."""
    known, counts = read_licences(root), Counter[str]()
    found = documents_table(root).read(columns=["licence"])["licence"].value_counts(name="n")
    for licence, n in found.iter_rows():
        classed = known is not None and (licence is None or licence in known.classes)
        counts[known.class_of(licence) if known and classed else "unclassed"] += n
    return {name: counts[name] for name in (*CLASSES, *(["unclassed"] if counts["unclassed"] else []))}
