"""Counts on a description that tell a list of search words from a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

_SEPARATOR = re.compile(r"[,;|/·•\n]")
_WORD = re.compile(r"[^\W\d_]{4,40}")
# Words that every description repeats.
_COMMON = frozenset({
    "when", "user", "users", "with", "that", "this", "from", "uses", "using", "used", "into", "skill",
    "skills", "also", "need", "needs", "wants", "asks", "such", "your", "their", "them", "and", "for",
    "the", "including", "includes", "about", "even", "mentions"
})  # fmt: skip
_ITEM_WORDS = 3
# A list of search words is mostly that: sentences that hold an enumeration have longer pieces, too.
_SHARE = 0.7
# A word that is one in eight of a description's words.
_WORD_SHARE = 8


def keyword_list(text: str) -> int:
    """Return how many items of at most three words a text holds, 0 where fewer than 70 % of its are such."""
    items = [item for item in _SEPARATOR.split(text) if item.strip()]
    short = sum(len(item.split()) <= _ITEM_WORDS for item in items)
    return short if items and short >= _SHARE * len(items) else 0


def repeated_word(text: str) -> int:
    """Return how often its commonest word occurs, 0 where that is less than every eighth word."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _COMMON]
    if not words:
        return 0
    often = Counter(words).most_common(1)[0][1]
    return often if often * _WORD_SHARE >= len(words) else 0


MEASURES: Mapping[str, Callable[[str], int]] = {"keyword_list": keyword_list, "repeated_word": repeated_word}
