"""Fills a page from a ranking: with everything, or with as much as fits a budget."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain, islice

from storage.schemas import Node
from tasks.models.protocols import Tokenizer
from tasks.retrieve.paging.context import GAP_MARK, Pick, assemble, ceiling_of, fill, outline, runs
from tasks.retrieve.paging.types import Page, PagedDocument, Selection


def page_of(
    document: PagedDocument, selection: Selection, *, tokenizer: Tokenizer, method: str, budget: float | None
) -> Page:
    """Return the page that a ranking gives, with a budget as `page` describes it; `n_tokens` is known."""
    document_tokens = document.n_tokens or 0
    if budget is None:
        picks, ceiling = list(selection.ranked), math.inf
        context = _printed(document.body, selection, picks)
        tokens = tokenizer.count([context])[0]
    else:
        ceiling = ceiling_of(budget, document_tokens)
        picks, context, tokens = _fit(document.body, selection, tokenizer, int(ceiling))
    inside = _nodes_inside(document.nodes, selection, picks)
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
        chunks=len(picks) if selection.chunks else None,
    )


def _fit(body: str, selection: Selection, tokenizer: Tokenizer, ceiling: int) -> tuple[list[Pick], str, int]:
    """Return picks whose context, counted as printed, is within the ceiling, or else the best one alone."""
    ranked = iter(selection.ranked)
    best = list(islice(ranked, 1))
    headings = selection.headings
    *heading_tokens, mark_tokens = tokenizer.count([*(body[h.start : h.end] for h in headings), GAP_MARK])
    picks = fill(
        chain(best, ranked),
        tokens=selection.tokens,
        heading_tokens=heading_tokens,
        mark_tokens=0 if selection.apart else mark_tokens,
        where=outline(selection.spans, headings),
        ceiling=ceiling,
    )
    # A best unit that does not fit must not give way to worse ones that do.
    picks = picks if picks[:1] == best else []
    while picks or not best:
        context = _printed(body, selection, picks)
        tokens = tokenizer.count([context])[0]
        if tokens <= ceiling or not best:
            return picks, context, tokens
        picks.pop()
    start, end = selection.spans[best[0][0]]
    return best, body[start:end], tokenizer.count([body[start:end]])[0]


def _printed(body: str, selection: Selection, picks: Sequence[Pick]) -> str:
    chosen, spans = sorted(ordinal for ordinal, _ in picks), selection.spans
    if selection.apart:
        return "\n\n".join(body[spans[unit][0] : spans[unit][1]] for unit in chosen)
    return assemble(body, spans, selection.headings, chosen)


def _nodes_inside(
    nodes: Sequence[Node], selection: Selection, picks: Sequence[Pick]
) -> list[tuple[Node, float]]:
    """Return the nodes that lie wholly in what is printed, with the score of the unit they begin in."""
    scores, spans = dict(picks), selection.spans
    together = [(unit, unit) for unit in sorted(scores)] if selection.apart else runs(scores)
    printed = [(spans[first][0], spans[last][1]) for first, last in together]
    ends = [end for _, end in printed]
    units = sorted(scores)
    unit_ends = [spans[unit][1] for unit in units]
    inside: list[tuple[Node, float]] = []
    for node in nodes:
        run = bisect_left(ends, node.end)
        if run < len(printed) and printed[run][0] <= node.start:
            inside.append((node, scores[units[bisect_right(unit_ends, node.start)]]))
    return inside
