"""Asks what is served as users ask: probes and the sample's requests, by `search` and `page`; their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import UnknownDocument, Withheld
from tasks.evaluate.health.history import LATENCY
from tasks.evaluate.health.probes import K, Probe, history_row, quality_rows
from tasks.evaluate.measures.evidence import EvidenceQuery, coverage, read_queries
from tasks.evaluate.measures.runs import latency
from tasks.evaluate.paging.outcomes import Outcome, summarise_outcomes
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.served_index import ServedIndex

_PAGES = 30  # pages asked at most: each reads a whole skill
_MISSES = 20  # misses named at most


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows of the history, and of the probes whose skill was not found: `sentence`, `doc_id`, `first`."""

    rows: list[dict[str, Any]]
    misses: list[dict[str, Any]]


def ask_logged(index: ServedIndex, probes: Sequence[Probe]) -> list[dict[str, Any]]:
    """Return hit@10 and MRR@10 of what people asked of late, whose answer is what answered then."""
    if not probes:
        return []
    rankings = [[found["doc_id"] for found in index.search(p.text, K)["results"]] for p in probes]
    return quality_rows("logged search to its skill", "served", [p.doc_id for p in probes], rankings)


def is_shown(index: ServedIndex, doc_id: str) -> bool:
    """Tell whether a skill is served and its licence lets its text be shown."""
    try:
        index.find(doc_id)
    except (UnknownDocument, Withheld):
        return False
    return True


def ask_probes(index: ServedIndex, probes: Sequence[Probe]) -> Asked:
    """Search for each probe and page its skill; skills whose licence withholds their text are not asked for.

    Returns:
        Hit@10 and MRR@10 of the leg `served`; median and 95th percentile of the milliseconds that one answer
        of `index` takes. Nothing if there is nothing to ask.
    """
    asked = [probe for probe in probes if is_shown(index, probe.doc_id)]
    if not asked:
        return Asked([], [])
    answers = [index.search(probe.text, K) for probe in asked]
    rankings = [[found["doc_id"] for found in answer["results"]] for answer in answers]
    pages = [index.page(p.doc_id, p.text, budget=None, method=DEFAULT_METHOD) for p in asked[:_PAGES]]
    rows = [
        *quality_rows("sentence to skill", "served", [p.doc_id for p in asked], rankings),
        *latency_rows("search", [answer["took_ms"] for answer in answers]),
        *latency_rows("page", [page["took_ms"] for page in pages]),
    ]
    misses = [
        {"sentence": probe.text, "doc_id": probe.doc_id, "first": found[0] if found else ""}
        for probe, found in zip(asked, rankings, strict=True)
        if probe.doc_id not in found
    ]
    return Asked(rows, misses[:_MISSES])


def latency_rows(leg: str, took_ms: Sequence[float]) -> list[dict[str, Any]]:
    """Return median and 95th percentile of milliseconds as rows of the history."""
    return [history_row(LATENCY, leg, m, ms, queries=len(took_ms)) for m, ms in latency(took_ms).items()]


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
