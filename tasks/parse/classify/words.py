"""The words of a fragment, its headings and its neighbours, as named features."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from tasks.parse.classify.protocol import FragmentInContext

# Characters and words that are read. Types show early, so that more would only cost time.
_READ, _WORDS = 400, 60
_READ_BESIDE, _WORDS_BESIDE = 150, 12
_TOKEN = re.compile(r"[a-z]+(?:['’-][a-z]+)*|[^\sa-z0-9]|\d+")


def find_words(fragment: FragmentInContext) -> set[str]:
    """Return the words, each named by its place.

    They are words and pairs of words of the text (`t`, in code `c`) and of its headings from the innermost
    outwards (`h`, `a`, `p`), the first three words of the text, and words of the neighbours.
    """
    found = set(_own(fragment))
    found.update(_of_headings(fragment.heading_path, fragment.block))
    for place, text in (("before", fragment.previous), ("after", fragment.next)):
        words = _TOKEN.findall((text or "")[:_READ_BESIDE].lower())
        found.update([f"{place}:{word}" for word in words[:_WORDS_BESIDE]])
        if words:
            found.update((f"{place}0:{words[0]}", f"{place}-1:{words[-1]}"))
    return found


@lru_cache(maxsize=1024)
def _of_headings(path: tuple[str, ...], block: str) -> tuple[str, ...]:
    """Return the words of headings, which the fragments below them share."""
    found: list[str] = []
    for place, title in zip("ha" + "p" * len(path), path[::-1], strict=False):
        words = _TOKEN.findall(title[:_READ].lower())
        found += [*_with_pairs(words, place), *(f"path:{word}" for word in words)]
        if place == "h":
            found += [f"{block}|h:{word}" for word in words]
    return tuple(dict.fromkeys(found))


def _own(fragment: FragmentInContext) -> list[str]:
    kind = "c" if fragment.block == "code" else "t"
    words = _TOKEN.findall(fragment.text[:_READ].lower())[:_WORDS]
    return [*_with_pairs(words, kind), *(f"{kind}{place}:{word}" for place, word in enumerate(words[:3]))]


def _with_pairs(words: list[str], place: str) -> list[str]:
    return [f"{place}:{word}" for word in words] + [f"{place}2:{a} {b}" for a, b in pairwise(words)]
