"""Paging measured by evidence: sufficiency, coverage and token reduction of each method and budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product
from typing import Any

import numpy as np

from storage.errors import WrongInput
from tasks.evaluate.evidence import EvidenceQuery, coverage
from tasks.evaluate.statistics import bootstrap_interval, bootstrap_ratio_interval, clustered_interval
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.parse.classify import Classifier
from tasks.parse.document import parse_document
from tasks.parse.edges import infer_edges
from tasks.refine.boilerplate import strip_boilerplate
from tasks.refine.canonical import canonical
from tasks.refine.frontmatter import parse_frontmatter
from tasks.retrieve.chunks import encode_chunks
from tasks.retrieve.page import METHODS, Page, PagedDocument, page
from tasks.retrieve.paging_ready import make_ready

# Documents of up to so many nodes, and of more; the paper's own line is at 100.
SIZES = (50, 100)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one query got: share of evidence covered, tokens of context and body, nodes, milliseconds.

    `node_tokens` are those of all nodes joined, the paper's whole document; where the query comes from is
    told by `query_id`, `doc_id`, `breadth` and `size`, the number of its document's nodes.
    """

    coverage: float
    tokens: int
    document_tokens: int
    nodes: int
    milliseconds: float
    node_tokens: int = 0
    query_id: str = ""
    doc_id: str = ""
    breadth: str | None = None
    size: int = 0


@dataclass(slots=True)
class Remembering:
    """An encoder that encodes no text twice; `spared` adds up the seconds that its memory saved."""

    encoder: Encoder
    clock: Callable[[], float] = time.perf_counter
    spared: float = 0.0
    _known: dict[tuple[str, ...], tuple[Vectors, float]] = field(default_factory=dict)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, as the encoder does."""
        key = tuple(texts)
        if key in self._known:
            vectors, seconds = self._known[key]
            self.spared += seconds
            return vectors
        began = self.clock()
        vectors = self.encoder.encode(texts)
        self._known[key] = vectors, self.clock() - began
        return vectors


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

    Args:
        documents: Text by doc_id, front matter included; each one is parsed and encoded once.
        queries: The requests; a document that none asks for is left alone.
        methods: Some of `tasks.retrieve.page.METHODS`.
        budgets: None for each method's own limit; other values as `page` takes them.
        encoder: For nodes, chunks and queries.
        tokenizer: Counts tokens.
        classifier: Types the nodes.
        progress: Called with the pages done and their total.
        clock: Seconds that only ever grow.

    Returns:
        `{methods: [...]}`, a row for each method and budget, as `summarise` has it.

    Raises:
        WrongInput: A query's document is missing, there is no query, or as `page` raises.
    """
    require_paging(documents, queries, methods)
    ready = prepare_all(documents, queries, encoder=encoder, tokenizer=tokenizer, classifier=classifier)
    bench = PagingBench(ready, queries, encoder, tokenizer, clock)
    return evaluate_bench(bench, methods=methods, budgets=budgets, progress=progress)


def evaluate_bench(
    bench: PagingBench,
    *,
    methods: Sequence[str],
    budgets: Sequence[float | None],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Measure as `evaluate_paging` does, on documents that are ready."""
    settings = list(product(methods, budgets))
    total, steps = len(bench.queries) * len(settings), count(1)

    def step() -> None:
        progress(next(steps), total)

    rows = [(m, b, summarise(bench.measured(m, b, step=step))) for m, b in settings]
    return {"methods": [{"method": m, "budget": b, **row} for m, b, row in rows]}


@dataclass(slots=True)
class PagingBench:
    """Documents and queries to measure methods on; every query is encoded once."""

    documents: Mapping[str, PagedDocument]
    queries: Sequence[EvidenceQuery]
    encoder: Encoder
    tokenizer: Tokenizer
    clock: Callable[[], float] = time.perf_counter

    def measured(
        self,
        method: str,
        budget: float | Sequence[float] | None,
        *,
        step: Callable[[], None] = lambda: None,
    ) -> list[Outcome]:
        """Return what each query got by a method, under one budget or each query's own.

        A time includes encoding the query, as long as that took when it was encoded.
        """
        budgets = budget if isinstance(budget, Sequence) else [budget] * len(self.queries)
        found = []
        for query, limit in zip(self.queries, budgets, strict=True):
            found.append(self._one(query, method, limit))
            step()
        return found

    def _one(self, query: EvidenceQuery, method: str, budget: float | None) -> Outcome:
        document = self.documents[query.doc_id]
        spared = getattr(self.encoder, "spared", 0.0)
        began = self.clock()
        answer = page(
            document,
            query.query,
            encoder=self.encoder,
            tokenizer=self.tokenizer,
            method=method,
            budget=budget,
        )
        seconds = self.clock() - began + getattr(self.encoder, "spared", 0.0) - spared
        return _outcome(query, answer, seconds, document)


def prepare_all(
    documents: Mapping[str, str],
    queries: Iterable[EvidenceQuery],
    *,
    encoder: Encoder,
    tokenizer: Tokenizer,
    classifier: Classifier,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, PagedDocument]:
    """Return each document that a query asks for, parsed, encoded and ready for every method."""
    ready: dict[str, PagedDocument] = {}
    asked = list(dict.fromkeys(query.doc_id for query in queries))
    for doc_id in asked:
        ready[doc_id] = prepare(
            doc_id, documents[doc_id], encoder=encoder, tokenizer=tokenizer, classifier=classifier
        )
        progress(len(ready), len(asked))
    return ready


def prepare(
    doc_id: str, content: str, *, encoder: Encoder, tokenizer: Tokenizer, classifier: Classifier
) -> PagedDocument:
    """Return a document without its front matter, parsed and encoded, with its chunks and edges."""
    body, _ = strip_boilerplate(canonical(parse_frontmatter(content).body)[0], "body")
    nodes = parse_document(doc_id, body, classifier=classifier, tokenizer=tokenizer)
    vectors = encoder.encode([node.text for node in nodes])
    document = PagedDocument(doc_id, body, nodes, vectors, n_tokens=tokenizer.count([body])[0])
    return replace(
        document,
        chunks=encode_chunks(body, encoder=encoder, tokenizer=tokenizer),
        edges=infer_edges(nodes, vectors),
        ready=make_ready(body, nodes, vectors, tokenizer) if nodes else None,
    )


def _outcome(query: EvidenceQuery, answer: Page, seconds: float, document: PagedDocument) -> Outcome:
    return Outcome(
        coverage=coverage(answer.context, query.evidence),
        tokens=answer.tokens,
        document_tokens=answer.document_tokens,
        nodes=len(answer.nodes),
        milliseconds=1000 * seconds,
        node_tokens=sum(node.n_tokens for node in document.nodes),
        query_id=query.query_id,
        doc_id=query.doc_id,
        breadth=query.breadth,
        size=len(document.nodes),
    )


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the measures of one method and budget with their intervals; there is at least one outcome.

    `sufficient` is the share of queries whose context covers all evidence, `coverage` the mean share of
    evidence covered, `token_reduction` is `1 - tokens of contexts / tokens of bodies`, both summed over
    queries (`token_reduction_nodes` against all nodes joined, as the paper has it), and `nodes` the mean
    number of nodes in a context. `ci95` holds percentile bootstrap intervals over queries,
    `ci95_clustered` that of `sufficient` over documents; `median_ms` and `p95_ms` are of a query, its
    encoding included. `by_breadth` and `by_size` hold the first three for groups of queries.
    """
    values = {
        "sufficient": [float(outcome.coverage == 1.0) for outcome in outcomes],
        "coverage": [outcome.coverage for outcome in outcomes],
        "nodes": [float(outcome.nodes) for outcome in outcomes],
    }
    bodies = [max(outcome.document_tokens, 1) for outcome in outcomes]
    left_out = [body - outcome.tokens for body, outcome in zip(bodies, outcomes, strict=True)]
    milliseconds = [outcome.milliseconds for outcome in outcomes]
    doc_ids = [outcome.doc_id for outcome in outcomes]
    return {
        **_core(outcomes),
        "nodes": float(np.mean(values["nodes"])),
        "token_reduction_nodes": _reduction(outcomes, [outcome.node_tokens for outcome in outcomes]),
        "ci95": {
            **{measure: list(bootstrap_interval(column)) for measure, column in values.items()},
            "token_reduction": list(bootstrap_ratio_interval(left_out, bodies)),
        },
        "ci95_clustered": {"sufficient": list(clustered_interval(values["sufficient"], doc_ids))},
        "median_ms": float(np.median(milliseconds)),
        "p95_ms": float(np.quantile(milliseconds, 0.95)),
        "by_breadth": _groups(outcomes, lambda outcome: outcome.breadth or ""),
        "by_size": _groups(outcomes, lambda outcome: _size(outcome.size)),
    }


def _core(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "queries": len(outcomes),
        "sufficient": float(np.mean([outcome.coverage == 1.0 for outcome in outcomes])),
        "coverage": float(np.mean([outcome.coverage for outcome in outcomes])),
        "token_reduction": _reduction(outcomes, [outcome.document_tokens for outcome in outcomes]),
    }


def _reduction(outcomes: Sequence[Outcome], whole: Sequence[int]) -> float:
    return 1 - sum(outcome.tokens for outcome in outcomes) / max(sum(whole), 1)


def _groups(outcomes: Sequence[Outcome], name: Callable[[Outcome], str]) -> dict[str, Any]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(name(outcome), []).append(outcome)
    return {key: _core(groups[key]) for key in sorted(groups) if key}


def _size(nodes: int) -> str:
    small, middle = SIZES
    return f"1: to {small} nodes" if nodes <= small else f"2: to {middle}" if nodes <= middle else "3: more"


def require_paging(
    documents: Mapping[str, str], queries: Sequence[EvidenceQuery], methods: Sequence[str]
) -> None:
    """Let documents, queries and methods pass that can be measured.

    Raises:
        WrongInput: There is no query, a method is not known, or a query's document is missing.
    """
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
