"""A request, split into the terms to look for and the facets that an answer has to cover."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.refine.text.words import CLAUSE_BREAK, stem_by_suffix
from tasks.retrieve.paging.context import Span
from tasks.retrieve.paging.terms import words_of

# Beyond these a request is an essay: its first terms and facets say what it is about.
_MOST_TERMS = 64
_MOST_FACETS = 12
_MOST_WORDS = 40
_FACET_TERMS = 3
_READ_CHARACTERS = 20_000
_ENCODED_CHARACTERS = 2000
_ENCODED = re.compile(r"[^\W_]{2,}")
_EDGE = " ,.;"
# The scorer of units was fitted on terms without these words. Routing has fewer function words; with those
# the features would shift: who changes these fits the scorer again.
_STOP = frozenset(
    """
    a about all also am an and any are as at be been being but by can could did do does don each for
    from get had has have he her here him his how i if in into is it its just let ll make me more most
    my need no not now of on only or other our out own re s same shall she should so some such t than
    that the their them then there these they this those to too up us use using ve very want was we
    were what when where which who why will with would you your
    """.split()  # noqa: SIM905 (a hundred quoted words are harder to read)
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a query asks for, and the part of its `text` that is encoded."""

    text: str
    terms: tuple[str, ...]  # stems of the query's words without function words, each once, in order
    # Spans of clauses in `text`, at least one, each with own terms if there are enough.
    facets: tuple[Span, ...]
    words: tuple[Span, ...]  # spans in `text` of its first words that are no function words
    asks: npt.NDArray[np.bool_]  # whether a facet has a term, shape `(facets, terms)`


def read_request(query: str) -> Request:
    """Split a query; of a very long one the first 20,000 characters, 64 terms and 12 facets count.

    Its first 2,000 characters are encoded, and facets lie in them.
    """
    text = query.lstrip()[:_ENCODED_CHARACTERS]
    terms = tuple(dict.fromkeys(_terms(query[:_READ_CHARACTERS])))[:_MOST_TERMS]
    facets = _facets(text)
    asked = [set(_terms(text[start:end])) for start, end in facets]
    asks = np.array([[term in asks for term in terms] for asks in asked], dtype=np.bool_)
    words = tuple(match.span() for match in _ENCODED.finditer(text) if match[0].lower() not in _STOP)
    return Request(text, terms, facets, words[:_MOST_WORDS], asks.reshape(len(facets), len(terms)))


def _terms(text: str) -> list[str]:
    return [stem_by_suffix(word) for word in words_of(text) if word not in _STOP]


def _facets(text: str) -> tuple[Span, ...]:
    """Cut a query into clauses; a clause of fewer than three terms joins the next one."""
    found: list[Span] = []
    begun = -1
    for start, end in _clauses(text):
        begun = start if begun < 0 else begun
        if len(set(_terms(text[begun:end]))) >= _FACET_TERMS:
            found.append((begun, end))
            begun = -1
        last = end
    if begun >= 0:
        found = [*found[:-1], (found[-1][0] if found else begun, last)]
    return tuple(found[:_MOST_FACETS]) or ((0, len(text)),)


def _clauses(text: str) -> Iterator[Span]:
    at = 0
    cuts = [match.span() for match in CLAUSE_BREAK.finditer(text)]
    for start, end in (*cuts, (len(text), len(text))):
        bare = text[at:start].lstrip(_EDGE)
        if clause := bare.rstrip(_EDGE):
            yield start - len(bare), start - len(bare) + len(clause)
        at = end
