"""Answers a request with a page of one document: the few parts that it needs (SkillPager, stage 2)."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType

from storage.errors import WrongInput
from tasks.models.protocols import Encoder, Tokenizer
from tasks.retrieve.baselines.fill import page_of
from tasks.retrieve.baselines.skillpager import (
    SETTINGS,
    NodeRanking,
    rank_chunks,
    rank_every_node,
    rank_whole,
)
from tasks.retrieve.paging.facets import page_by_facets
from tasks.retrieve.paging.types import Page, PagedDocument, Ranking, Reranker

DEFAULT_METHOD = "facets"
_RANKINGS: MappingProxyType[str, Ranking] = MappingProxyType(
    {
        "full": rank_whole,
        "nodes": rank_every_node,
        **{name: NodeRanking(setting) for name, setting in SETTINGS.items()},
        "chunks": rank_chunks,
    }
)
METHODS = (DEFAULT_METHOD, *_RANKINGS)
# The only methods that read a document's edges.
EDGE_METHODS = frozenset(name for name, setting in SETTINGS.items() if setting.walk or setting.predecessors)


def page(
    document: PagedDocument,
    query: str,
    *,
    encoder: Encoder,
    tokenizer: Tokenizer,
    method: str = DEFAULT_METHOD,
    budget: float | None = None,
    reranker: Reranker | None = None,
) -> Page:
    """Return the parts of a document that a query needs.

    Without a budget the method decides how much that is. With a budget, units are taken from the best on (a
    published method ranks all nodes then, up to its early stop), and a unit that no longer fits is skipped.
    The budget is a ceiling for `Page.tokens`, headings and gap marks included. If not even the best unit
    fits, it is returned whole, alone and without headings, and `over_budget` is true if it is too long even
    so. The only unit of `full` is the body.

    Args:
        document: The document to read.
        query: The request; not blank.
        encoder: The one that made the vectors; encodes the query, and nodes or chunks without vectors.
        tokenizer: Counts tokens.
        method: One of `METHODS`.
        budget: Up to 1 a share of the document's tokens, above 1 a number of tokens.
        reranker: Shifts the scores of the default method.

    Raises:
        WrongInput: The query is blank, the method unknown or not one to rerank, or the budget not a positive
            number.
        ValueError: The vectors' shape does not fit the nodes.
    """
    _check(query, method, budget)
    require_reranked(method, reranked=reranker is not None)
    if document.n_tokens is None:
        document = replace(document, n_tokens=tokenizer.count([document.body])[0])
    if method == DEFAULT_METHOD and document.nodes:
        return page_by_facets(
            document, query, encoder=encoder, tokenizer=tokenizer, budget=budget, reranker=reranker
        )
    # A document without nodes is one piece, whatever the method.
    ranking = _RANKINGS.get(method, rank_every_node)
    selection = ranking(document, query, encoder=encoder, tokenizer=tokenizer, limited=budget is not None)
    found = page_of(document, selection, tokenizer=tokenizer, method=method, budget=budget)
    return found if reranker is None else replace(found, reranked=False)


def require_reranked(method: str, *, reranked: bool) -> None:
    """Refuse to rerank any method but the default one.

    Raises:
        WrongInput: `reranked` is true of another method.
    """
    if reranked and method != DEFAULT_METHOD:
        msg = f"paging method {method!r} is as its paper has it: only {DEFAULT_METHOD!r} can be reranked"
        raise WrongInput(msg)


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
