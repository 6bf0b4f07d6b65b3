"""Paging measured by evidence: sufficiency, coverage and token reduction of each method and budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any

import numpy as np

from storage.errors import WrongInput
from tasks.evaluate.evidence import EvidenceQuery, coverage
from tasks.evaluate.statistics import bootstrap_interval, bootstrap_ratio_interval
from tasks.models.protocols import Encoder, Tokenizer
from tasks.parse.classify import Classifier
from tasks.parse.document import parse_document
from tasks.refine.boilerplate import strip_boilerplate
from tasks.refine.canonical import canonical
from tasks.refine.frontmatter import parse_frontmatter
from tasks.retrieve.chunks import encode_chunks
from tasks.retrieve.page import METHODS, Page, PagedDocument, page


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one query got: share of evidence covered, tokens of context and body, nodes, milliseconds."""

    coverage: float
    tokens: int
    document_tokens: int
    nodes: int
    milliseconds: float


def evaluate_paging(
    documents: Mapping[str, str],
    queries: Sequence[EvidenceQuery],
    *,
    methods: Sequence[str],
    budgets: Sequence[float | None],
    encoder: Encoder,
    tokenizer: Tokenizer,
    classifier: Classifier,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Page every query by every method and budget and measure what the contexts contain.

    `sufficient` is the share of queries whose context covers all evidence, `coverage` the mean share of
    evidence covered, `token_reduction` is `1 - tokens of contexts / tokens of bodies`, both summed over
    queries, and `nodes` the mean number of nodes that stand in a context whole. `ci95` holds percentile
    bootstrap intervals over queries, `median_ms` and `p95_ms` the time of a query, its encoding included.

    Args:
        documents: Text by doc_id, front matter included; each one is parsed and encoded once.
        queries: The requests; a document that none asks for is left alone.
        methods: Keys of `tasks.retrieve.page.METHODS`.
        budgets: None for each method's own limit; other values as `page` takes them.
        encoder: For nodes, chunks and queries.
        tokenizer: Counts tokens.
        classifier: Types the nodes.
        progress: Called with the steps done and their total: one a document, then one a page.
        clock: Seconds that only ever grow.

    Returns:
        `{methods: [...]}`, a row for each method and budget.

    Raises:
        WrongInput: A query's document is missing, there is no query, or as `page` raises.
    """
    _check(documents, queries, methods)
    asked = list(dict.fromkeys(query.doc_id for query in queries))
    settings = list(product(methods, budgets))
    total, steps = len(asked) + len(queries) * len(settings), count(1)
    ready: dict[str, PagedDocument] = {}
    for doc_id in asked:
        text, chunks = documents[doc_id], "chunks" in methods
        ready[doc_id] = prepare(
            doc_id, text, encoder=encoder, tokenizer=tokenizer, classifier=classifier, chunks=chunks
        )
        progress(next(steps), total)

    def measured(query: EvidenceQuery, method: str, budget: float | None) -> Outcome:
        began = clock()
        document = ready[query.doc_id]
        found = page(
            document, query.query, method=method, budget=budget, encoder=encoder, tokenizer=tokenizer
        )
        outcome = _outcome(query, found, clock() - began)
        progress(next(steps), total)
        return outcome

    rows = [(m, b, summarise([measured(query, m, b) for query in queries])) for m, b in settings]
    return {"methods": [{"method": m, "budget": b, **row} for m, b, row in rows]}


def prepare(
    doc_id: str, content: str, *, encoder: Encoder, tokenizer: Tokenizer, classifier: Classifier, chunks: bool
) -> PagedDocument:
    """Return a document without its front matter, parsed and encoded; its chunks too where asked for."""
    body, _ = strip_boilerplate(canonical(parse_frontmatter(content).body)[0], "body")
    nodes = parse_document(doc_id, body, classifier=classifier, tokenizer=tokenizer)
    return PagedDocument(
        doc_id,
        body,
        nodes,
        vectors=encoder.encode([node.text for node in nodes]),
        n_tokens=tokenizer.count([body])[0],
        chunks=encode_chunks(body, encoder=encoder, tokenizer=tokenizer) if chunks else None,
    )


def _outcome(query: EvidenceQuery, answer: Page, seconds: float) -> Outcome:
    return Outcome(
        coverage=coverage(answer.context, query.evidence),
        tokens=answer.tokens,
        document_tokens=answer.document_tokens,
        nodes=len(answer.nodes),
        milliseconds=1000 * seconds,
    )


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the measures of one method and budget with their intervals; there is at least one outcome."""
    values = {
        "sufficient": [float(outcome.coverage == 1.0) for outcome in outcomes],
        "coverage": [outcome.coverage for outcome in outcomes],
        "nodes": [float(outcome.nodes) for outcome in outcomes],
    }
    bodies = [max(outcome.document_tokens, 1) for outcome in outcomes]
    left_out = [body - outcome.tokens for body, outcome in zip(bodies, outcomes, strict=True)]
    milliseconds = [outcome.milliseconds for outcome in outcomes]
    return {
        "queries": len(outcomes),
        **{measure: float(np.mean(column)) for measure, column in values.items()},
        "token_reduction": sum(left_out) / sum(bodies),
        "ci95": {
            **{measure: list(bootstrap_interval(column)) for measure, column in values.items()},
            "token_reduction": list(bootstrap_ratio_interval(left_out, bodies)),
        },
        "median_ms": float(np.median(milliseconds)),
        "p95_ms": float(np.quantile(milliseconds, 0.95)),
    }


def _check(documents: Mapping[str, str], queries: Sequence[EvidenceQuery], methods: Sequence[str]) -> None:
    if not queries:
        msg = "there are no queries to evaluate; give a file with at least one"
        raise WrongInput(msg)
    if unknown := [method for method in methods if method not in METHODS]:
        msg = f"unknown paging method {unknown[0]!r}; choose one of {', '.join(METHODS)}"
        raise WrongInput(msg)
    for query in queries:
        if query.doc_id not in documents:
            msg = f"query {query.query_id}: no document {query.doc_id!r} is given; add it or drop the query"
            raise WrongInput(msg)
