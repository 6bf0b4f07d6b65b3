"""Ranking measures on qrels and runs, a value a query, as in TREC.

A document is relevant when its judged relevance is above 0. Every judged query counts: one that the run does
not answer, or that has no relevant document, has the value 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType

from storage.errors import WrongInput
from storage.schemas import Qrel, ScoredDoc

Judgements = Mapping[str, int]


def hit(ranking: Sequence[str], relevance: Judgements, k: int) -> float:
    """Return 1 if any of the first `k` documents is relevant, else 0 (hit@k, success@k)."""
    return float(any(relevance.get(doc_id, 0) > 0 for doc_id in ranking[:k]))


def recall(ranking: Sequence[str], relevance: Judgements, k: int) -> float:
    """Return the share of the relevant documents among the first `k` (R@k)."""
    relevant = _relevant(relevance)
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def full_coverage(ranking: Sequence[str], relevance: Judgements, k: int) -> float:
    """Return 1 if all relevant documents are among the first `k`, else 0 (FC@k, SkillRouter)."""
    relevant = _relevant(relevance)
    return float(bool(relevant) and relevant.issubset(ranking[:k]))


def reciprocal_rank(ranking: Sequence[str], relevance: Judgements, k: int) -> float:
    """Return 1 / rank of the first relevant document, 0 where it is not among the first `k` (RR@k)."""
    ranks = (rank for rank, doc_id in enumerate(ranking[:k], start=1) if relevance.get(doc_id, 0) > 0)
    return 1 / next(ranks, math.inf)


def ndcg(ranking: Sequence[str], relevance: Judgements, k: int) -> float:
    """Return the discounted gain of the first `k` documents over that of an ideal ranking (nDCG@k).

    The gain of a document is its relevance itself (linear, as in trec_eval), and rank `r` is discounted by
    `log2(r + 1)`. Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.
    """
    ideal = _discounted(sorted(relevance.values(), reverse=True)[:k])
    return _discounted([relevance.get(doc_id, 0) for doc_id in ranking[:k]]) / ideal if ideal else 0.0


_MEASURES: MappingProxyType[str, Callable[[Sequence[str], Judgements, int], float]] = MappingProxyType(
    {"hit": hit, "recall": recall, "mrr": reciprocal_rank, "ndcg": ndcg, "fc": full_coverage}
)


def ranked(run: Iterable[ScoredDoc]) -> dict[str, list[str]]:
    """Return each query's documents, highest score first.

    Equal scores are ordered by ascending doc_id; a document given twice counts where it scores best.
    """
    rows: dict[str, list[tuple[float, str]]] = {}
    for query_id, doc_id, score in run:
        rows.setdefault(query_id, []).append((-score, doc_id))
    return {
        query_id: list(dict.fromkeys(doc_id for _, doc_id in sorted(row))) for query_id, row in rows.items()
    }


def per_query(measure: str, qrels: Iterable[Qrel], rankings: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the measure of every judged query, in the order in which the qrels name them.

    Args:
        measure: `hit@k`, `recall@k`, `mrr@k`, `ndcg@k` or `fc@k` with a number for k.
        qrels: The judgements; of two about the same document the later holds.
        rankings: doc_ids a query, best first; queries without judgements are passed over.

    Raises:
        WrongInput: The measure is none of these.
    """
    compute, k = _parse(measure)
    judged: dict[str, dict[str, int]] = {}
    for query_id, doc_id, relevance in qrels:
        judged.setdefault(query_id, {})[doc_id] = max(relevance, 0)
    return {q: compute(rankings.get(q, ()), relevance, k) for q, relevance in judged.items()}


def mean(values: Mapping[str, float]) -> float:
    """Return the mean over queries; 0 where there is none."""
    return fmean(values.values()) if values else 0.0


def _parse(measure: str) -> tuple[Callable[[Sequence[str], Judgements, int], float], int]:
    match = re.fullmatch(r"([a-z]+)@([1-9]\d*)", measure)
    if match is None or match[1] not in _MEASURES:
        known = ", ".join(f"{name}@k" for name in _MEASURES)
        msg = f"unknown measure {measure!r}; choose one of {known} with a number for k"
        raise WrongInput(msg)
    return _MEASURES[match[1]], int(match[2])


def _relevant(relevance: Judgements) -> set[str]:
    return {doc_id for doc_id, grade in relevance.items() if grade > 0}


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
