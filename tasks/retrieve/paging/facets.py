"""The default method, by facets: what each facet of a request needs, for the fewest tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from storage.errors import StorageError
from storage.schemas import Node
from tasks.models.protocols import Encoder, PartEncoder, Tokenizer, Vectors
from tasks.models.token_states import encoded
from tasks.retrieve.paging.context import ceiling_of
from tasks.retrieve.paging.render import Printed, print_units
from tasks.retrieve.paging.request import Request, read_request
from tasks.retrieve.paging.scorer import GROUPS, Scorer, chances, features, packaged_scorer
from tasks.retrieve.paging.selection import ENOUGH, choose
from tasks.retrieve.paging.terms import Floats, Integers
from tasks.retrieve.paging.types import (
    Page,
    PagedDocument,
    Ready,
    Reranker,
    make_ready,
    node_vectors,
    tokens_of,
)


@dataclass(frozen=True, slots=True)
class Scored:
    """A document's units scored for one request: features, shape `(len(features.NAMES), units)`, and logits.

    `logits`, shape `(units,)`, include what a reranker `added` to each node, if there is one; `reranked` says
    whether it answered.
    """

    ready: Ready
    scorer: Scorer
    features: Floats
    logits: Floats
    added: Floats | None = None
    reranked: bool | None = None


def ready_for(document: PagedDocument, *, encoder: Encoder, tokenizer: Tokenizer) -> Ready:
    """Return the document's prepared form, computed if the document does not bring it.

    Raises `StorageError` if nodes or vectors cannot belong to this body; `ValueError` if the vectors' shape
    does not fit the nodes.
    """
    if document.ready is not None:
        return document.ready
    if document.vectors is None:
        vectors, states = encoded(encoder, [node.text for node in document.nodes])
    else:
        vectors = node_vectors(document, encoder)
        states = list(document.states or [b""] * len(document.nodes))
    _require_sound(document, vectors)
    try:
        return make_ready(document.body, document.nodes, vectors, states, tokenizer)
    except ValueError as error:
        raise _damaged(document, f"states of its nodes cannot be read ({error})") from error


def _require_sound(document: PagedDocument, vectors: Vectors) -> None:
    body, ends = document.body, [0, *(node.end for node in document.nodes)]
    for place, node in enumerate(document.nodes):
        if (node.ordinal, body[node.start : node.end]) != (place, node.text) or node.start < ends[place]:
            raise _damaged(document, f"node {node.node_id} is not what stands in its text")
    if not np.isfinite(vectors).all():
        raise _damaged(document, "a vector of its nodes is no vector of numbers")


def _damaged(document: PagedDocument, found: str) -> StorageError:
    return StorageError(f"{document.doc_id}: {found}: the index is damaged, `skillery doctor` finds out how")


def unit_features(ready: Ready, request: Request, asked: Vectors) -> Floats:
    """Return the scorer's features of all units; `asked` are the vectors of the request."""
    return features(ready.prepared, ready.vectors, ready.states, request, asked)


def ask(query: str, encoder: Encoder) -> tuple[Request, Vectors]:
    """Split a query and encode it: the whole, its facets, its words, in one pass if the encoder can."""
    request = read_request(query)
    parts = [*request.facets, *request.words]
    if isinstance(encoder, PartEncoder):
        return request, encoder.encode_parts(request.text, parts)
    return request, encoder.encode([request.text, *(request.text[start:end] for start, end in parts)])


def page_by_facets(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, budget: float | None,
    scorer: Scorer | None = None, reranker: Reranker | None = None,
) -> Page:  # fmt: skip
    """Return the page of a document with at least one node and known `n_tokens`; the query is not blank.

    Every unit is scored from words, vectors, headings, surroundings and facets of the request. Then units are
    taken by their chance of being needed over their cost, each with what it cannot be read without. Without a
    budget that ends when the units hold the share `ENOUGH` of all chances.
    """
    ready = ready_for(document, encoder=encoder, tokenizer=tokenizer)
    matrix = unit_features(ready, *ask(query, encoder))
    scorer = scorer or packaged_scorer()
    scored = Scored(ready, scorer, matrix, scorer.logits(matrix))
    tokens = document.n_tokens or 0
    ceiling = math.inf if budget is None else ceiling_of(budget, tokens)
    if ceiling >= tokens and budget is not None:  # nothing is left to choose, nor to ask about
        scored = replace(scored, reranked=None if reranker is None else False)
        texts = {node.ordinal: node.text for node in document.nodes}
        everything = Printed(document.body, texts, frozenset(texts), 0)
        return _answer(document, scored, everything, tokens, budget)
    if reranker is not None:
        scored = _reranked(scored, document, query, reranker)
    chosen = choose(
        ready.prepared,
        chances(scored.logits),
        ready.costs,
        ceiling=ceiling,
        enough=ENOUGH if budget is None else 1.0,
    )
    printed, counted = _fitted(ready, chosen, ceiling, tokenizer)
    if not printed.texts:
        return _best_alone(document, scored, tokenizer, ceiling, budget)
    return _answer(document, scored, printed, counted, budget)


def _reranked(scored: Scored, document: PagedDocument, query: str, reranker: Reranker) -> Scored:
    added = reranker.shifts(document.doc_id, document.nodes, query, scored.logits[_best_units(scored)])
    if added is None:
        return replace(scored, reranked=False)
    logits = scored.logits + added[scored.ready.prepared.units.owner]
    return replace(scored, logits=logits, added=added, reranked=True)


def _fitted(ready: Ready, chosen: Sequence[int], ceiling: float, tokenizer: Tokenizer) -> tuple[Printed, int]:
    """Print and count, removing the units taken last until the text is within the ceiling."""
    kept = list(chosen)
    while True:
        printed = print_units(ready.prepared, ready.pieces, sorted(kept))
        counted = tokens_of(ready, kept, printed.marks)
        if not ready.additive:
            counted = tokenizer.count([printed.context])[0]
        if counted <= ceiling or not kept:
            return printed, counted
        excess = counted - ceiling
        while kept and excess > 0:
            excess -= ready.costs.units[kept.pop()]


def _answer(
    document: PagedDocument, scored: Scored, printed: Printed, tokens: int, budget: float | None
) -> Page:
    best = _best_units(scored)
    by_node = scored.logits[best]
    scores: list[float] = by_node.tolist()
    nodes, texts = document.nodes, printed.texts
    left = np.array([n for n in range(len(nodes)) if n not in texts], dtype=np.int64)
    left = left[np.argsort(-by_node[left], kind="stable")]
    # Rounded as the numbers they are, so that they print with three digits.
    parts = scored.scorer.by_group(scored.features)[best[list(texts)]].astype(np.float64).round(3).tolist()
    return Page(
        context=printed.context,
        nodes=[(nodes[n], scores[n]) for n in texts],
        tokens=tokens,
        document_tokens=document.n_tokens or 0,
        over_budget=False,
        method="facets",
        budget=budget,
        printed={nodes[n].node_id: text for n, text in texts.items() if n not in printed.whole},
        why={nodes[n].node_id: _why(scored, n, row) for n, row in zip(texts, parts, strict=True)},
        left_out=[(nodes[n], scores[n]) for n in left.tolist()],
        reranked=scored.reranked,
    )


def _why(scored: Scored, node: int, parts: Sequence[float]) -> dict[str, float]:
    said = dict(zip(GROUPS, parts, strict=True))
    if scored.added is not None:
        said["reranker"] = round(float(scored.added[node]), 3)
    return said


def _best_alone(
    document: PagedDocument, scored: Scored, tokenizer: Tokenizer, ceiling: float, budget: float | None
) -> Page:
    best = int(scored.ready.prepared.units.owner[int(np.argmax(scored.logits))])
    node: Node = document.nodes[best]
    printed = Printed(node.text, {best: node.text}, frozenset({best}), 0)
    tokens = tokenizer.count([node.text])[0]
    answer = _answer(document, scored, printed, tokens, budget)
    return replace(answer, over_budget=tokens > ceiling)


def _best_units(scored: Scored) -> Integers:
    first = scored.ready.prepared.units.first
    best = np.maximum.reduceat(scored.logits, first[:-1])
    at = np.flatnonzero(scored.logits == np.repeat(best, np.diff(first)))
    return at[np.searchsorted(at, first[:-1])]
