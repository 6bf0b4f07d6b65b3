"""Held-out figures of the default method: documents are scored by scorers not fitted on them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from itertools import count
from typing import Any

from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.bench import PagingBench, rows_of
from tasks.evaluate.paging.fit import FITTED, body_digest, example, folds, held_out
from tasks.evaluate.paging.outcomes import Outcome
from tasks.evaluate.paging.report import HELD_OUT
from tasks.retrieve.paging.facets import page_by_facets
from tasks.retrieve.paging.scorer import Scorer
from tasks.retrieve.paging.types import Page, PagedDocument

SEED = 42
_LEAST_DOCUMENTS = 18  # two a fold


@functools.cache
def fitted_digests() -> frozenset[str]:
    """Return the digests of the bodies that the packaged scorer was fitted on."""
    text = resources.files("tasks.evaluate").joinpath(FITTED).read_text("utf-8")
    return frozenset(json.loads(text)["bodies"])


def fitted_among(documents: Iterable[PagedDocument]) -> int:
    """Return on how many of these documents the packaged scorer was fitted."""
    return sum(body_digest(document.body) in fitted_digests() for document in documents)


def held_out_rows(
    bench: PagingBench, budgets: Iterable[float | None], progress: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    """Return a row of `summarise` for each budget, each request paged by a scorer fitted to other documents.

    The rows have the method `HELD_OUT`; folds are by document, drawn by seed 42. There are none for fewer
    than 18 documents. `progress` is called with the pages done and their total.
    """
    doc_ids = sorted({query.doc_id for query in bench.queries if bench.documents[query.doc_id].nodes})
    if len(doc_ids) < _LEAST_DOCUMENTS:
        return []
    asked = [query for query in bench.queries if query.doc_id in set(doc_ids)]
    examples = [example(q, bench.documents[q.doc_id], bench.encoder, bench.tokenizer) for q in asked]
    scorers, fold = held_out(examples, SEED), folds(doc_ids, SEED)
    limits = list(budgets)
    steps, total = count(1), len(limits) * len(asked)
    measured: Mapping[tuple[str, float | None], list[Outcome]] = {(HELD_OUT, b): [] for b in limits}
    for (_, budget), outcomes in measured.items():
        for query in asked:
            outcomes.append(_held_out(bench, query, budget, scorers[fold[query.doc_id]]))
            progress(next(steps), total)
    return rows_of(measured)


def _held_out(bench: PagingBench, query: EvidenceQuery, budget: float | None, scorer: Scorer) -> Outcome:
    def paged(document: PagedDocument) -> Page:
        return page_by_facets(
            document,
            query.query,
            encoder=bench.encoder,
            tokenizer=bench.tokenizer,
            budget=budget,
            scorer=scorer,
        )

    return bench.outcome(query, paged)
