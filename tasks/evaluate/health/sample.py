"""Asks the requests of the sample marketplace of what is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.evaluate.health.as_served import is_shown
from tasks.evaluate.health.probes import history_row, quality_rows
from tasks.evaluate.measures.evidence import EvidenceQuery, coverage, read_queries
from tasks.evaluate.paging.outcomes import Outcome, summarise_outcomes
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.served_index import ServedIndex

REQUESTS = Path(__file__).parents[1] / "data" / "marketplace_queries.jsonl"
METHODS = ("full", "mmr", DEFAULT_METHOD)
_PAGED = ("sufficient", "coverage", "token_reduction")
_MEASURES = ("hit@1", "hit@10", "mrr@10")


def sample_requests(index: ServedIndex) -> list[EvidenceQuery]:
    """Return the requests whose skills' texts are served; none where the sample was not crawled."""
    return [q for q in read_queries(REQUESTS) if is_shown(index, q.doc_id)]


def page_sample(index: ServedIndex, requests: Sequence[EvidenceQuery]) -> list[dict[str, Any]]:
    """Return a row a method: sufficiency, coverage and token reduction on the requests' evidence."""
    rows = []
    for method in METHODS:
        answers = [index.page(q.doc_id, q.query, budget=None, method=method) for q in requests]
        outcomes = [_outcome(q, a) for q, a in zip(requests, answers, strict=True)]
        rows.append({"method": method, "budget": None, **summarise_outcomes(outcomes)})
    return rows


def paging_rows(paging: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what `page_sample` measured as rows of the evaluation history."""
    return [
        history_row(
            "sample request paged", row["method"], measure, float(row[measure]), queries=row["queries"],
            interval=tuple(row["ci95"][measure]),
        )
        for row in paging
        for measure in _PAGED
    ]  # fmt: skip


def _outcome(query: EvidenceQuery, answer: dict[str, Any]) -> Outcome:
    return Outcome(
        coverage=coverage(answer["context"], query.evidence),
        tokens=answer["tokens"],
        document_tokens=answer["document_tokens"],
        nodes=len(answer["nodes"]),
        milliseconds=answer["took_ms"],
    )


def route_sample(index: ServedIndex, requests: Sequence[EvidenceQuery]) -> list[dict[str, Any]]:
    """Return rows as the probes have them: does search find the skill that each request was written from?"""
    rankings = [[found["doc_id"] for found in index.search(q.query)["results"]] for q in requests]
    # A skill that was folded into a copy of itself is found under its survivor's id.
    wanted = [index.find(q.doc_id) for q in requests]
    return quality_rows("sample request to skill", "fused", wanted, rankings, _MEASURES)
