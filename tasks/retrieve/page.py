"""Paging: the few parts of one document that a request needs (SkillPager, stage 2).

What ends a page of the default method: `paging/selection.py`.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from storage.errors import WrongInput
from storage.schemas import Node
from tasks.models.protocols import Encoder, Tokenizer
from tasks.retrieve.baselines.skillpager import (
    OPEN_SETTINGS,
    ChunkRanking,
    NodeRanking,
    OpenSettings,
    rank_every_node,
    rank_whole,
    settings_of,
)
from tasks.retrieve.paging.context import GAP_MARK, Pick, assemble, ceiling_of, fill, outline, runs
from tasks.retrieve.paging.facets import page_by_facets
from tasks.retrieve.paging.scorer import Scorer
from tasks.retrieve.paging.types import Page, PagedDocument, Ranking, Reranker, Selection


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


DEFAULT_METHOD = "facets"


@functools.cache
def _rankings(given: OpenSettings) -> Mapping[str, Ranking]:
    return {
        "full": rank_whole,
        "nodes": partial(rank_every_node, apart=given.printed == "nodes"),
        **{name: NodeRanking(setting, given) for name, setting in settings_of(given).items()},
        "chunks": ChunkRanking(given),
    }


METHODS = (DEFAULT_METHOD, *_rankings(OPEN_SETTINGS))


def page(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer,
    method: str = DEFAULT_METHOD, budget: float | None = None, reranker: Reranker | None = None,
    scorer: Scorer | None = None, skillpager: OpenSettings = OPEN_SETTINGS,
) -> Page:  # fmt: skip
    """Return the parts of a document that a query needs.

    Without a budget the method alone decides how much that is. With one, up to 1 a share of the document's
    tokens and above 1 a number of tokens, units are taken from the best on, and those that do not fit are
    left out; a published method's own rules to stop are lifted then, so that it fills the budget. The budget
    is a ceiling for `Page.tokens`, headings and gap marks included. If not even the best unit fits, it alone
    is returned, whole and without headings, and `over_budget` is true if it is too long; for `full` it is the
    body.

    The encoder is the one that made the vectors; it encodes the query, and nodes or chunks without vectors. A
    reranker changes the scores of the default method, and `scorer` takes the packaged one's place in it;
    `skillpager` is what its paper leaves open. Raises `WrongInput` if the query is blank, the method unknown
    or not one to rerank, or the budget not a positive number; `ValueError` if the vectors' shape does not fit
    the nodes.
    """
    _check(query, method, budget)
    require_reranked(method, reranked=reranker is not None)
    if document.n_tokens is None:
        document = replace(document, n_tokens=tokenizer.count([document.body])[0])
    if method == DEFAULT_METHOD and document.nodes:
        return page_by_facets(
            document,
            query,
            encoder=encoder,
            tokenizer=tokenizer,
            budget=budget,
            scorer=scorer,
            reranker=reranker,
        )
    # A document without nodes is one piece, whatever the method.
    ranking = _rankings(skillpager).get(method, rank_every_node)
    selection = ranking(document, query, encoder=encoder, tokenizer=tokenizer, limited=budget is not None)
    found = page_of(document, selection, tokenizer=tokenizer, method=method, budget=budget)
    return found if reranker is None else replace(found, reranked=False)


def require_reranked(method: str, *, reranked: bool) -> None:
    """Raise `WrongInput` if a reranker goes with another method than the default one."""
    if reranked and method != DEFAULT_METHOD:
        msg = f"paging method {method!r} is as its paper has it: only {DEFAULT_METHOD!r} can be reranked"
        raise WrongInput(msg)


def _check(query: str, method: str, budget: float | None) -> None:
    if not query.strip():
        raise WrongInput("the query is empty; say what the document is needed for")
    if method not in METHODS:
        raise WrongInput(f"unknown paging method {method!r}; choose one of {', '.join(METHODS)}")
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        msg = f"budget {budget} is no positive number; give a share up to 1 or a number of tokens above 1"
        raise WrongInput(msg)
