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
EXCERPT_CHARS = 80
_MARKUP = str.maketrans(
    {"<": "‹", ">": "›", "`": "'", "[": "(", "]": ")", "|": "¦", "\\": "/", "*": "∗", "#": "♯"}
)
# Encoded data and whatever key the rules of redaction do not know.
_LONG_TOKEN = re.compile(r"(?=[\w+/=-]{0,200}\d)[\w+=-]{20,}|[\w+/=-]{48,}")
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Mn"}


def _seen(character: str) -> str:
    if character in {"\n", "\t"}:
        return " "
    if ord(character) < 0x7F and character >= " ":
        return character
    return f"U+{ord(character):04X} " if unicodedata.category(character) in _UNSEEN else character


def excerpt(text: str, *, limit: int = EXCERPT_CHARS) -> str:
    """Return the beginning of a text, safe to show: one visible line without markup, keys or links.

    Key-like strings are redacted, long encoded runs cut to four characters, `http` is written `hxxp`,
    marks of Markdown, HTML and chat turns become look-alikes, and invisible characters are named (`U+200B`).

    Args:
        text: Any text; only its first 2,000 characters are looked at.
        limit: Characters of the result at most; a longer text ends in `…`.
    """
    clear = _LONG_TOKEN.sub(lambda m: m[0][:4] + "…", redact(text[:2000])[0])
    shown = "".join(map(_seen, clear[: 2 * limit]))
    shown = " ".join(shown.replace("http", "hxxp").translate(_MARKUP).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
