"""Row pairs: how well one skill or server works after another, in [0, 1]."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.retrieve.compose.compatibility.io_types import InputOutput, handed_over, io_of
from tasks.retrieve.routing.postings import function_terms, term_sequence

# What names and descriptions of servers have whatever they serve.
_COMMON_WORDS = """
mcp server model context protocol ai llm agent assistant claude tool api integration integrate skill use
using enable allow provide support access interact interaction connect service implementation based via
new multiple various any all other more
"""


@dataclass(frozen=True, slots=True)
class Used:
    """A row as it is used for a step: its types, and the terms of its name, description and category."""

    io: InputOutput
    terms: frozenset[int]
    category: frozenset[int]


def used(name: str, description: str, category: str | None, step: str = "") -> Used:
    """Return a row as it is used for a step, whose text narrows down what the row takes and gives."""
    told = f"{name}\n{description}"
    io = io_of(told).used_for(io_of(step)) if step else io_of(told)
    return Used(io, _terms(told), _terms(category or ""))


def compatibility(first: Used, then: Used) -> float:
    """Return the mean of three shares in [0, 1]: I/O, category and keywords (SkillWeaver, section 4.3).

    I/O: how well something that `first` gives passes for something that `then` takes. Category: the Jaccard
    similarity of their words. Keywords: of the terms of the row that has fewer, those that the other has too.
    """
    shared = len(first.terms & then.terms)
    fewest = min(len(first.terms), len(then.terms))
    either = len(first.category | then.category)
    parts = (
        handed_over(first.io.gives, then.io.takes),
        len(first.category & then.category) / either if either else 0.0,
        shared / fewest if fewest else 0.0,
    )
    return sum(parts) / len(parts)


def mean_compatibility(before: Sequence[Used], then: Used) -> float | None:
    """Return the mean compatibility of a row with rows before it; None without any."""
    return sum(compatibility(first, then) for first in before) / len(before) if before else None


@functools.lru_cache(maxsize=8_192)
def _terms(text: str) -> frozenset[int]:
    """Return the stemmed terms of a text's start, without function words and words of every server."""
    return frozenset(term_sequence(text[:1_000])) - function_terms() - _common_terms()


@functools.cache
def _common_terms() -> frozenset[int]:
    return frozenset(term_sequence(_COMMON_WORDS))
