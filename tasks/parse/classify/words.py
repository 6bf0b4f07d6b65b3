"""The words of a fragment, its headings and its neighbours, as named features."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from tasks.parse.classify.protocol import FragmentInContext

# Characters and words that are read. Types show early, so that more would only cost time.
_READ, _WORDS = 400, 60
_READ_BESIDE, _WORDS_BESIDE = 150, 12
_TOKEN = re.compile(r"[a-z]+(?:['’-][a-z]+)*|[^\sa-z0-9]|\d+")


def find_words(fragment: FragmentInContext) -> list[str]:
    """Return the words, each named by its place, each once, in alphabetical order.

    They are words and pairs of words of the text (`t`, in code `c`) and of its headings from the innermost
    outwards (`h`, `a`, `p`), the first three words of the text, and words of the neighbours.
    """
    found = set(_own(fragment))
    titles = fragment.heading_path[::-1]
    for place, title in zip("ha" + "p" * len(titles), titles, strict=False):
        words = _TOKEN.findall(title[:_READ].lower())
        found.update(_with_pairs(words, place), (f"path:{word}" for word in words))
        if place == "h":
            found.update(f"{fragment.block}|h:{word}" for word in words)
    for place, text in (("before", fragment.previous), ("after", fragment.next)):
        words = _TOKEN.findall((text or "")[:_READ_BESIDE].lower())
        found.update(f"{place}:{word}" for word in words[:_WORDS_BESIDE])
        found.update(
            f"{place}{end}:{word}" for end, some in ((0, words[:1]), (-1, words[-1:])) for word in some
        )
    return sorted(found)


def _own(fragment: FragmentInContext) -> Iterable[str]:
    kind = "c" if fragment.block == "code" else "t"
    words = _TOKEN.findall(fragment.text[:_READ].lower())[:_WORDS]
    yield from _with_pairs(words, kind)
    yield from (f"{kind}{place}:{word}" for place, word in enumerate(words[:3]))


def _with_pairs(words: list[str], place: str) -> Iterable[str]:
    yield from (f"{place}:{word}" for word in words)
    yield from (f"{place}2:{one} {other}" for one, other in pairwise(words))
