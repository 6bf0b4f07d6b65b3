"""Measures of a description that tell a list of search words from a sentence."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping

from tasks.refine.text.redact import redact

_SEPARATOR = re.compile(r"[,;|/·•\n]")
_WORD = re.compile(r"[^\W\d_]{4,40}")
# Words that every description repeats.
_COMMON = frozenset({
    "when", "user", "users", "with", "that", "this", "from", "uses", "using", "used", "into", "skill",
    "skills", "also", "need", "needs", "wants", "asks", "such", "your", "their", "them", "and", "for",
    "the", "including", "includes", "about", "even", "mentions"
})  # fmt: skip
_ITEM_WORDS = 3
# Least share of short items: a sentence with an enumeration in it has longer pieces, too.
_SHARE = 0.7
# The commonest word must be at least one in so many words.
_WORD_SHARE = 8
EXCERPT_CHARS = 80
_MARKUP = str.maketrans("<>`[]|\\*#", "‹›'()¦/∗♯")
# Encoded data, and keys that no rule of redaction knows.
_LONG_TOKEN = re.compile(r"(?=[\w+/=-]{0,200}\d)[\w+=-]{20,}|[\w+/=-]{48,}")
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Mn"}


def keyword_list(text: str) -> int:
    """Return the number of items of at most three words; 0 if fewer than 70 % of the items are so short."""
    items = [item for item in _SEPARATOR.split(text) if item.strip()]
    short = sum(len(item.split()) <= _ITEM_WORDS for item in items)
    return short if short >= _SHARE * len(items) else 0


def repeated_word(text: str) -> int:
    """Return how often a text's commonest word occurs; 0 if that is less than every eighth word."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _COMMON]
    often = max(Counter(words).values(), default=0)
    return often if often * _WORD_SHARE >= len(words) else 0


MEASURES: Mapping[str, Callable[[str], int]] = {"keyword_list": keyword_list, "repeated_word": repeated_word}


def _seen(character: str) -> str:
    """Return a character as a reader sees it; of an invisible one its code point."""
    if character in {"\n", "\t"}:
        return " "
    if ord(character) < 0x7F and character >= " ":
        return character
    return f"U+{ord(character):04X} " if unicodedata.category(character) in _UNSEEN else character


def excerpt(text: str, *, limit: int = EXCERPT_CHARS) -> str:
    """Return the beginning of a text, safe to show: one visible line without markup, keys or links.

    Keys are redacted, long encoded runs cut to four characters, `http` becomes `hxxp`, marks of Markdown and
    HTML become look-alikes, and invisible characters their code point (`U+200B`). Only the first 2,000
    characters are read; a result longer than `limit` characters is cut and ends in `…`.
    """
    clear = _LONG_TOKEN.sub(lambda m: m[0][:4] + "…", redact(text[:2000])[0])
    shown = "".join(map(_seen, clear[: 2 * limit]))
    shown = " ".join(shown.replace("http", "hxxp").translate(_MARKUP).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
