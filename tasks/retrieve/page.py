"""Paging: the few parts of one document that a request needs (SkillPager, stage 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from types import MappingProxyType
from typing import Protocol

from storage.errors import WrongInput
from storage.schemas import Node
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.parse.segment import Heading, headings_between
from tasks.retrieve.assemble import GAP_MARK, Span, assemble, outline, runs
from tasks.retrieve.budget import Pick, fill
from tasks.retrieve.chunks import Chunks, encode_chunks
from tasks.retrieve.mmr import mmr_order, node_budget


@dataclass(frozen=True, slots=True)
class PagedDocument:
    """A document ready for paging; what is None is worked out on the spot, for every page anew.

    Args:
        doc_id: The document's id.
        body: Its text.
        nodes: All its nodes, in order.
        vectors: The nodes' unit vectors, shape `(n, d)`.
        n_tokens: Tokens of `body`.
        chunks: What the method `chunks` picks from.
    """

    doc_id: str
    body: str
    nodes: Sequence[Node]
    vectors: Vectors | None = None
    n_tokens: int | None = None
    chunks: Chunks | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a method ranked: units of a body, and which of them in which order.

    Args:
        spans: The unit's spans in the body, ordered and disjoint.
        tokens: Tokens of each unit.
        headings: The headings to put back over the units.
        ranked: `(ordinal of a unit, score)`, best first; an iterator is consumed no further than needed.
    """

    spans: Sequence[Span]
    tokens: Sequence[int]
    headings: Sequence[Heading]
    ranked: Iterable[Pick]


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a request.

    Args:
        context: What to read, in document order.
        nodes: The nodes that stand in `context` whole, in document order, each with its score.
        tokens: Tokens of `context`.
        document_tokens: Tokens of the body.
        over_budget: Not even the best node fits the budget; it is returned whole.
        method: The name of the method.
        budget: As it was given.
    """

    context: str
    nodes: list[tuple[Node, float]]
    tokens: int
    document_tokens: int
    over_budget: bool
    method: str
    budget: float | None


class Method(Protocol):
    """A way of choosing what to read of a document."""

    def __call__(
        self, document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
    ) -> Selection:
        """Rank a document's units for a query; `limited`: a token budget will cut the ranking off."""


def page(
    document: PagedDocument,
    query: str,
    *,
    encoder: Encoder,
    tokenizer: Tokenizer,
    method: str = "mmr",
    budget: float | None = None,
) -> Page:
    """Return the parts of a document that a query needs.

    Without a budget the method alone decides. With one, the method's whole ranking is gone through from the
    best on (for MMR: its greedy order with no limit on the number of nodes, ended by its early stop), and
    whatever no longer fits is passed over. The budget is a ceiling for `Page.tokens`, headings and gap marks
    included. Where not even the best unit fits, it alone is returned, whole and without headings, and
    `over_budget` is true if it is still too long; for `full` the one unit is the body.

    Args:
        document: The document to read.
        query: The request; not blank.
        encoder: The one that made the vectors; encodes the query, and nodes or chunks that have none yet.
        tokenizer: Counts tokens.
        method: A key of `METHODS`.
        budget: Up to 1 a share of the document's tokens, above 1 a number of tokens.

    Raises:
        WrongInput: The query is blank, the method unknown, or the budget not a positive number.
        ValueError: The vectors' shape does not fit the nodes.
    """
    _check(query, method, budget)
    document_tokens = document.n_tokens
    if document_tokens is None:
        document_tokens = tokenizer.count([document.body])[0]
        document = replace(document, n_tokens=document_tokens)
    selection = METHODS[method](
        document, query, encoder=encoder, tokenizer=tokenizer, limited=budget is not None
    )
    if budget is None:
        picks, ceiling = list(selection.ranked), math.inf
        context = assemble(document.body, selection.spans, selection.headings, [i for i, _ in picks])
        tokens = tokenizer.count([context])[0]
    else:
        ceiling = int(budget * document_tokens) if budget <= 1 else int(budget)
        picks, context, tokens = _fit(document.body, selection, tokenizer, ceiling)
    return Page(
        context=context,
        nodes=_nodes_inside(document.nodes, selection.spans, picks),
        tokens=tokens,
        document_tokens=document_tokens,
        over_budget=tokens > ceiling,
        method=method,
        budget=budget,
    )


def _check(query: str, method: str, budget: float | None) -> None:
    if not query.strip():
        msg = "the query is empty; say what the document is needed for"
        raise WrongInput(msg)
    if method not in METHODS:
        msg = f"unknown paging method {method!r}; choose one of {', '.join(METHODS)}"
        raise WrongInput(msg)
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        msg = f"budget {budget} is no positive number; give a share up to 1 or a number of tokens above 1"
        raise WrongInput(msg)


def _fit(body: str, selection: Selection, tokenizer: Tokenizer, ceiling: int) -> tuple[list[Pick], str, int]:
    """Return picks whose context, counted as printed, is within the ceiling, or the best one bare."""
    ranked = iter(selection.ranked)
    best = list(islice(ranked, 1))
    headings = selection.headings
    *heading_tokens, mark_tokens = tokenizer.count([*(body[h.start : h.end] for h in headings), GAP_MARK])
    picks = fill(
        chain(best, ranked),
        tokens=selection.tokens,
        heading_tokens=heading_tokens,
        mark_tokens=mark_tokens,
        where=outline(selection.spans, headings),
        ceiling=ceiling,
    )
    # A best unit that does not fit must not give way to worse ones that do.
    picks = picks if picks[:1] == best else []
    while picks or not best:
        context = assemble(body, selection.spans, headings, [ordinal for ordinal, _ in picks])
        tokens = tokenizer.count([context])[0]
        if tokens <= ceiling or not best:
            return picks, context, tokens
        picks.pop()
    start, end = selection.spans[best[0][0]]
    return best, body[start:end], tokenizer.count([body[start:end]])[0]


def _nodes_inside(
    nodes: Sequence[Node], spans: Sequence[Span], picks: Sequence[Pick]
) -> list[tuple[Node, float]]:
    """Return the nodes that lie wholly in what is printed, with the score of the unit they begin in."""
    scores = dict(picks)
    printed = [(spans[first][0], spans[last][1]) for first, last in runs(scores)]
    units = sorted(scores)
    inside: list[tuple[Node, float]] = []
    run = unit = 0
    for node in nodes:
        while run < len(printed) and printed[run][1] < node.end:
            run += 1
        if run == len(printed):
            break
        if printed[run][0] <= node.start:
            while spans[units[unit]][1] <= node.start:
                unit += 1
            inside.append((node, scores[units[unit]]))
    return inside


def _full(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """The whole body as one unit; it is not ranked, so its score is 0."""
    del query, encoder, tokenizer, limited
    return Selection([(0, len(document.body))], [document.n_tokens or 0], (), [(0, 0.0)])


def _every_node(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """All nodes in document order, scores 0: shows what taking the document apart loses."""
    del query, encoder, tokenizer, limited
    return _of_nodes(document, [(ordinal, 0.0) for ordinal in range(len(document.nodes))])


def _mmr(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """SkillPager's setting: weight 0.7, early stop below 0, 20 or 60 nodes, nodes of all types."""
    del tokenizer
    vectors = document.vectors
    if vectors is None and document.nodes:
        vectors = encoder.encode([node.text for node in document.nodes])
    if vectors is None:
        return _of_nodes(document, [])
    if len(vectors) != len(document.nodes):
        msg = f"{document.doc_id}: {len(document.nodes)} nodes but vectors of shape {vectors.shape}"
        raise ValueError(msg)
    return _of_nodes(document, _ranked(vectors, query, encoder, limited=limited))


def _chunks(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """The same MMR over chunks of 256 tokens, headings where they happen to fall."""
    chunks = document.chunks or encode_chunks(document.body, encoder=encoder, tokenizer=tokenizer)
    ranked = _ranked(chunks.vectors, query, encoder, limited=limited)
    return Selection(chunks.spans, chunks.tokens, (), ranked)


def _of_nodes(document: PagedDocument, ranked: Iterable[Pick]) -> Selection:
    spans = [(node.start, node.end) for node in document.nodes]
    tokens = [node.n_tokens for node in document.nodes]
    return Selection(spans, tokens, headings_between(document.body, spans), ranked)


def _ranked(vectors: Vectors, query: str, encoder: Encoder, *, limited: bool) -> Iterator[Pick]:
    """Rank by MMR; the best unit is kept even where its similarity is negative: a page is never empty."""
    if not len(vectors):
        return iter(())
    relevance = vectors @ encoder.encode([query])[0]
    order = mmr_order(relevance, vectors)
    best = list(islice(order, 1)) or list(islice(mmr_order(relevance, vectors, stop_below=None), 1))
    rest = order if limited else islice(order, node_budget(len(vectors)) - 1)
    return chain(best, rest)


METHODS: MappingProxyType[str, Method] = MappingProxyType(
    {"full": _full, "nodes": _every_node, "mmr": _mmr, "chunks": _chunks}
)
