"""A request taken apart: the terms to look for, and the facets that an answer has to cover."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Beyond these a request is an essay: its first terms and facets say what it is about.
_MOST_TERMS = 64
_MOST_FACETS = 12
_FACET_TERMS = 3
_FACET_CHARACTERS = 600
_READ_CHARACTERS = 20_000

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CUT = re.compile(
    r"(?<=[.!?;:。！？；：，、])\s*|,\s+|\s+(?:and|then|but|so that|so|while|or)\s+|\s+[-—–]\s+|\n+|[()]"
)
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "ly", "s", "e")
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
    """What a query asks for.

    Args:
        terms: Stems of its words without function words, each once, in order.
        facets: Its clauses, at least one, each with some terms of its own where there are enough.
        asks: Which facet has which term, shape `(facets, terms)`.
    """

    terms: tuple[str, ...]
    facets: tuple[str, ...]
    asks: npt.NDArray[np.bool_]


def read_request(query: str) -> Request:
    """Take a query apart; of a very long one the first 20,000 characters, 64 terms and 12 facets count."""
    text = query[:_READ_CHARACTERS]
    terms = tuple(dict.fromkeys(_terms(text)))[:_MOST_TERMS]
    facets = _facets(text)
    asks = np.array([[term in set(_terms(facet)) for term in terms] for facet in facets], dtype=np.bool_)
    return Request(terms, facets, asks.reshape(len(facets), len(terms)))


def _terms(text: str) -> list[str]:
    found: list[str] = []
    for word in _WORD.findall(text):
        if _UNSPACED.match(word):
            found += [word[i : i + 2] for i in range(max(len(word) - 1, 1))]
        elif (lower := word.lower()) not in _STOP:
            found.append(_stem(lower))
    return found


def _stem(word: str) -> str:
    """Return the beginning of a word that its inflections share."""
    if len(word) == 4 and word.endswith("s"):
        return word[:-1]
    if len(word) > 4:
        for suffix in _SUFFIXES:
            if word.endswith(suffix) and len(word) - len(suffix) >= 3:
                return word[: -len(suffix)]
    return word


def _facets(text: str) -> tuple[str, ...]:
    """Cut at clauses; a clause of fewer than three terms goes with the one after it."""
    found: list[str] = []
    held = ""
    for part in (piece.strip(" ,.;") for piece in _CUT.split(text)):
        held = f"{held} {part}".strip()
        if len(set(_terms(held))) >= _FACET_TERMS:
            found.append(held)
            held = ""
    if held and found:
        found[-1] = f"{found[-1]} {held}"
    elif held:
        found.append(held)
    whole = found or [text.strip()]
    return tuple(facet[:_FACET_CHARACTERS] for facet in whole[:_MOST_FACETS])
