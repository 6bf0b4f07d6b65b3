"""The default method: what each facet of a request needs, for the fewest tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from storage.schemas import Node
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.retrieve.paging_choice import Chooser
from tasks.retrieve.paging_features import features
from tasks.retrieve.paging_fill import ceiling_of
from tasks.retrieve.paging_outline import Floats
from tasks.retrieve.paging_print import Printed, print_units
from tasks.retrieve.paging_published import node_vectors
from tasks.retrieve.paging_ready import Ready, make_ready
from tasks.retrieve.paging_request import Request, read_request
from tasks.retrieve.paging_scorer import GROUPS, Scorer, chances, packaged_scorer
from tasks.retrieve.paging_types import Page, PagedDocument

# Of a longer query the encoder sees this much at once; its facets are encoded each by itself.
_WHOLE_QUERY = 2000
# Without a budget: stop when what is taken holds this share of what is likely to be needed (see the card).
ENOUGH = 0.88
# Where pieces meet a few tokens are added; printing and counting twice would cost more than this share.
_SPARE = 0.004


@dataclass(frozen=True, slots=True)
class Scored:
    """A document's units scored for one request: `logits` and what they are made of, by group."""

    ready: Ready
    logits: Floats
    parts: Floats


def ready_for(document: PagedDocument, *, encoder: Encoder, tokenizer: Tokenizer) -> Ready:
    """Return what the document brings, or work it out; errors as `page`."""
    if document.ready is not None:
        return document.ready
    return make_ready(document.body, document.nodes, node_vectors(document, encoder), tokenizer)


def unit_features(ready: Ready, body: str, request: Request, asked: Vectors) -> Floats:
    """Return the scorer's features of all units; `asked` are the vectors of query and facets."""
    return features(ready.prepared, ready.vectors, request, asked, body)


def ask(query: str, encoder: Encoder) -> tuple[Request, Vectors]:
    """Take a query apart and encode it: the whole, then its facets."""
    request = read_request(query)
    texts = [query[:_WHOLE_QUERY], *request.facets]
    vectors = dict(zip(once := list(dict.fromkeys(texts)), encoder.encode(once), strict=True))
    return request, np.stack([vectors[text] for text in texts])


def page_by_facets(
    document: PagedDocument,
    query: str,
    *,
    encoder: Encoder,
    tokenizer: Tokenizer,
    budget: float | None,
    scorer: Scorer | None = None,
    enough: float = ENOUGH,
) -> Page:
    """Return the page of a document with at least one node and known `n_tokens`; the query is not blank.

    Every unit is scored from words, meaning, headings, surroundings and facets of the request; units are
    then taken by their chance to be needed over their cost, each with what it cannot stand without.

    Args:
        document: The document to read.
        query: The request.
        encoder: Encodes the query, its facets, and nodes that have no vectors.
        tokenizer: Counts tokens.
        budget: As `page` takes it; None stops when what is taken holds `enough` of what is likely needed.
        scorer: Another one than the one that is shipped.
        enough: A share in (0, 1].
    """
    ready = ready_for(document, encoder=encoder, tokenizer=tokenizer)
    request, asked = ask(query, encoder)
    matrix = unit_features(ready, document.body, request, asked)
    scorer = scorer or packaged_scorer()
    scored = Scored(ready, scorer.logits(matrix), scorer.by_group(matrix))
    tokens = document.n_tokens or 0
    ceiling = math.inf if budget is None else ceiling_of(budget, tokens)
    if budget is not None and ceiling >= tokens:
        chosen = list(range(len(scored.logits)))
    else:
        chooser = Chooser(ready.prepared, chances(scored.logits), ready.costs)
        chosen = chooser.choose(ceiling - _SPARE * ceiling if budget else ceiling, 1.0 if budget else enough)
    printed, counted = _fitted(document, ready, chosen, ceiling, tokenizer)
    if not printed.texts:
        return _best_alone(document, scored, tokenizer, ceiling, budget)
    return _answer(document, scored, printed, counted, budget)


def _fitted(
    document: PagedDocument, ready: Ready, chosen: Sequence[int], ceiling: float, tokenizer: Tokenizer
) -> tuple[Printed, int]:
    """Print, count, and give up the units taken last until what is printed is within the ceiling."""
    kept = list(chosen)
    while True:
        printed = print_units(document.body, document.nodes, ready.prepared, kept)
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
    score = {node: float(scored.logits[unit]) for node, unit in enumerate(best)}
    nodes = document.nodes
    out = sorted((n for n in score if n not in printed.texts), key=lambda n: -score[n])
    return Page(
        context=printed.context,
        nodes=[(nodes[n], score[n]) for n in printed.texts],
        tokens=tokens,
        document_tokens=document.n_tokens or 0,
        over_budget=False,
        method="facets",
        budget=budget,
        printed={nodes[n].node_id: text for n, text in printed.texts.items() if n not in printed.whole},
        why={nodes[n].node_id: _why(scored, best[n]) for n in printed.texts},
        left_out=[(nodes[n], score[n]) for n in out],
    )


def _best_alone(
    document: PagedDocument, scored: Scored, tokenizer: Tokenizer, ceiling: float, budget: float | None
) -> Page:
    """Return the node of the best unit, whole and without headings: nothing fits under them."""
    best = int(scored.ready.prepared.units.owner[int(np.argmax(scored.logits))])
    node: Node = document.nodes[best]
    printed = Printed(node.text, {best: node.text}, frozenset({best}))
    tokens = tokenizer.count([node.text])[0]
    answer = _answer(document, scored, printed, tokens, budget)
    return replace(answer, over_budget=tokens > ceiling)


def _best_units(scored: Scored) -> list[int]:
    """Return the best unit of each node."""
    first = scored.ready.prepared.units.first.tolist()
    bounds = pairwise(first)
    return [a + int(np.argmax(scored.logits[a:b])) for a, b in bounds]


def _why(scored: Scored, unit: int) -> Mapping[str, float]:
    return {g: round(float(v), 3) for g, v in zip(GROUPS, scored.parts[unit], strict=True)}
