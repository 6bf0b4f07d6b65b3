"""The measures of routing, a row a query: ir_measures computes them, full coverage alone is ours."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.schemas import Qrel

DEPTH = 1000  # how deep rankings are looked at: SkillFlow's first stage keeps as many
RECALLS = (1, 5, 10, 20, 50, 100, 500, 1000)
PRECISIONS = (1, 5, 10, 50, 100, 500, 1000)
# Our names, and those of ir_measures (Success is what others call hit).
_LIBRARY = MappingProxyType({
    "hit@1": "Success@1", "hit@10": "Success@10", "mrr@10": "RR@10", "mrr": "RR", "ndcg@10": "nDCG@10",
    **{f"recall@{k}": f"R@{k}" for k in RECALLS},
    **{f"precision@{k}": f"P@{k}" for k in PRECISIONS},
})  # fmt: skip
MEASURES = (*_LIBRARY, "fc@10")  # every measure; those of `architecture.md`'s contract are among them


def fold(ranking: Iterable[str], copies: Mapping[str, str]) -> list[str]:
    """Return a ranking (ids, best first) in which each copy stands as its original, each id once."""
    return list(dict.fromkeys(copies.get(doc_id, doc_id) for doc_id in ranking))


def folded_qrels(qrels: Iterable[Qrel], copies: Mapping[str, str]) -> list[Qrel]:
    """Return judgements in which each copy stands as its original, with the highest relevance of both."""
    found: dict[tuple[str, str], int] = {}
    for query_id, doc_id, relevance in qrels:
        key = query_id, copies.get(doc_id, doc_id)
        found[key] = max(relevance, found.get(key, relevance))
    return [Qrel(*key, relevance) for key, relevance in found.items()]


def measure_rankings(qrels: Sequence[Qrel], rankings: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the measures of every query that has a ranking: `query_id`, and a column for each of `MEASURES`.

    An empty ranking has 0 throughout. Gains of nDCG are linear, as in trec_eval. FC@10 is 1 if all relevant
    skills are among the first ten (SkillRouter, appendix A).

    Args:
        qrels: The judgements; each ranked query has at least one relevant document.
        rankings: Ids for each query, best first, each once; ranks below `DEPTH` do not count.

    Raises:
        WrongInput: ir_measures is not installed.
    """
    library = _library()
    judged = [library.Qrel(*qrel) for qrel in qrels if qrel.query_id in rankings]
    # Ties would be broken by id: so the score is the rank itself.
    run = [
        library.ScoredDoc(query_id, doc_id, float(-rank))
        for query_id, ranking in rankings.items()
        for rank, doc_id in enumerate(ranking[:DEPTH])
    ]
    named = {library.parse_measure(theirs): ours for ours, theirs in _LIBRARY.items()}
    values: dict[str, dict[str, Any]] = {query_id: {"query_id": query_id} for query_id in rankings}
    for found in library.iter_calc(list(named), judged, run):
        values[found.query_id][named[found.measure]] = found.value
    relevance: dict[str, dict[str, int]] = {}
    for query_id, doc_id, grade in qrels:
        relevance.setdefault(query_id, {})[doc_id] = grade
    for query_id, ranking in rankings.items():
        relevant = {doc_id for doc_id, grade in relevance[query_id].items() if grade > 0}
        values[query_id]["fc@10"] = float(bool(relevant) and relevant.issubset(ranking[:10]))
    schema = {"query_id": pl.String, **dict.fromkeys(MEASURES, pl.Float64)}
    return pl.DataFrame(list(values.values()), schema=schema)


def require_measures() -> None:
    """Raise `WrongInput` if the library that measures is not installed."""
    _library()


def _library() -> Any:  # noqa: ANN401 (an optional package, loaded where something is measured)
    try:
        return importlib.import_module("ir_measures")
    except ModuleNotFoundError as error:
        msg = "routing is measured by the package ir-measures: pip install '.[evaluate]' in Skillery's folder"
        raise WrongInput(msg) from error
