"""What users get of what is served: the probes asked as `search` and `page` answer them, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.errors import UnknownDocument, Withheld
from storage.schemas import Qrel
from tasks.evaluate.health.probes import K, Probe, quality_row
from tasks.evaluate.measures.ranking import per_query
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.served_index import ServedIndex

_PAGES = 30  # pages asked at most: each reads a whole skill
_MISSES = 20  # misses named at most


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows of the history, and of the probes whose skill was not found: `sentence`, `doc_id`, `first`."""

    rows: list[dict[str, Any]]
    misses: list[dict[str, Any]]


def ask_probes(index: ServedIndex, probes: Sequence[Probe]) -> Asked:
    """Search for each probe and page its skill; skills whose licence withholds their text are not asked for.

    Args:
        index: What is served, pinned to one version.
        probes: Sentences with their skill.

    Returns:
        Hit@10 and MRR@10 of the leg `served`; median and 95th percentile of the milliseconds that one answer
        takes. Nothing where there is nothing to ask.
    """
    asked = [probe for probe in probes if _shown(index, probe.doc_id)]
    if not asked:
        return Asked([], [])
    answers = [index.search(probe.text, K) for probe in asked]
    rankings = {p.query_id: [r["doc_id"] for r in a["results"]] for p, a in zip(asked, answers, strict=True)}
    qrels = [Qrel(p.query_id, p.doc_id, 1) for p in asked]
    rows = [
        quality_row(
            "sentence to skill", "served", measure, list(per_query(measure, qrels, rankings).values())
        )
        for measure in (f"hit@{K}", f"mrr@{K}")
    ]
    rows += latency_rows("search", [a["took_ms"] for a in answers])
    pages = [index.page(p.doc_id, p.text, budget=None, method=DEFAULT_METHOD) for p in asked[:_PAGES]]
    rows += latency_rows("page", [page["took_ms"] for page in pages])
    missed = [p for p in asked if p.doc_id not in rankings[p.query_id]][:_MISSES]
    return Asked(rows, [_miss(p, rankings[p.query_id]) for p in missed])


def latency_rows(leg: str, took_ms: Sequence[float]) -> list[dict[str, Any]]:
    """Return median and 95th percentile of milliseconds as rows of the history."""
    median, p95 = (float(q) for q in np.percentile(took_ms, [50, 95]))
    known = {"probe": "latency", "leg": leg, "queries": len(took_ms), "low": None, "high": None}
    return [{**known, "measure": "median_ms", "value": median}, {**known, "measure": "p95_ms", "value": p95}]


def _shown(index: ServedIndex, doc_id: str) -> bool:
    try:
        index.find(doc_id)
    except (UnknownDocument, Withheld):
        return False
    return True


def _miss(probe: Probe, found: Sequence[str]) -> dict[str, Any]:
    return {"sentence": probe.text, "doc_id": probe.doc_id, "first": found[0] if found else ""}
