"""Fills a page from a ranking: everything without a budget, else as much as fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, islice

from storage.schemas import Node
from tasks.models.protocols import Tokenizer
from tasks.retrieve.paging.context import GAP_MARK, Pick, Span, assemble, ceiling_of, fill, outline, runs
from tasks.retrieve.paging.types import Page, PagedDocument, Selection


def page_of(
    document: PagedDocument, selection: Selection, *, tokenizer: Tokenizer, method: str, budget: float | None
) -> Page:
    """Return the page that a ranking makes; `n_tokens` of the document is known.

    With a budget, what no longer fits is left out. If not even the best unit fits, it is returned alone,
    whole and without headings, and `over_budget` is true if it is still too long.
    """
    document_tokens = document.n_tokens or 0
    if budget is None:
        picks, ceiling = list(selection.ranked), math.inf
        context = assemble(document.body, selection.spans, selection.headings, [i for i, _ in picks])
        tokens = tokenizer.count([context])[0]
    else:
        ceiling = ceiling_of(budget, document_tokens)
        picks, context, tokens = _fit(document.body, selection, tokenizer, int(ceiling))
    inside = _nodes_inside(document.nodes, selection.spans, picks)
    printed = {node.ordinal for node, _ in inside}
    return Page(
        context=context,
        nodes=inside,
        tokens=tokens,
        document_tokens=document_tokens,
        over_budget=tokens > ceiling,
        method=method,
        budget=budget,
        left_out=[(node, None) for node in document.nodes if node.ordinal not in printed],
    )


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
