"""Licence texts: which licence a file is, by a whole text, a tag, telling phrases, a notice, or a refusal."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tasks.refine.licences.bodies import beside, whole_texts
from tasks.refine.licences.names import folded, hedged, licence_tables, stated_licence

# Confidence of a text recognised whole, by a tag, by phrases or a sentence, and of a refusal.
_WHOLE, _TAGGED, _NAMED, _REFUSED = 0.95, 0.95, 0.8, 0.8
_HEAD_WORDS, _HEAD_LINES = 100, 5
# Most words of a file that only names its licence, and of its other sentences.
_NOTICE_WORDS, _BESIDE_WORDS = 80, 15
_SYMBOL = re.compile(r"[\w.-]+")
_TAG = re.compile(r"SPDX-License-Identifier:[ \t]*(?P<licence>[^\n*]+)")
_SENTENCE = re.compile(
    r"(?:licen[cs]ed|released|available|distributed)\s+under\s+(?:the\s+)?(?:terms\s+of\s+(?:the\s+)?)?"
    r"(?P<licence>[\w.+ -]{2,60}?)(?:\s+licen[cs]e)?(?:[.,;\n(]|\s+see\b|\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Recognised:
    """The licence of a text (an SPDX expression or None), the confidence (0 to 1), or why there is none."""

    licence: str | None
    confidence: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Text:
    """A licence's phrases, folded, and the least and most words of its text."""

    licence: str
    all: tuple[str, ...]
    head: tuple[str, ...]
    none: tuple[str, ...]
    words: tuple[int, int]

    def speaks(self, text: str, head: str) -> bool:
        said = all(p in text for p in self.all) and all(p in head for p in self.head)
        return said and not any(p in text for p in self.none)


@functools.cache
def _texts() -> tuple[_Text, ...]:
    def read(row: dict[str, Any]) -> _Text:
        said, head, unsaid = (tuple(map(folded, row.get(key, ()))) for key in ("all", "head", "none"))
        return _Text(row["licence"], said, head, unsaid, tuple(row["words"]))

    return tuple(map(read, licence_tables()["texts"]))


def _refusal(text: str) -> str | None:
    refusals: dict[str, Iterable[str]] = licence_tables()["refusals"]
    return next((spdx for spdx, phrases in refusals.items() if any(folded(p) in text for p in phrases)), None)


def _of_notice(text: str, n_words: int) -> Recognised:
    """Recognise a short file that names its licence instead of giving its text."""
    sentence = _SENTENCE.search(text) if n_words <= _NOTICE_WORDS else None
    named = stated_licence(sentence["licence"]).licence if sentence else None
    if sentence and named:
        rest = beside(f"{text[: sentence.start()]} {text[sentence.end() :]}")
    else:
        named, rest = stated_licence(text).licence, text
    if not named or n_words > _NOTICE_WORDS:
        return Recognised(None, note="its text is of no known licence")
    if (hedged(rest) or len(rest.split()) > _BESIDE_WORDS) and named not in licence_tables()["refusals"]:
        return Recognised(None, note=f"it names {named}, with words that may limit or take it back")
    return Recognised(named, _NAMED)


def _of_phrases(words: list[str], plain: str) -> Recognised | None:
    """Recognise a long text by its phrases and its length; return None if it has no such phrase."""
    head = " ".join(words[:_HEAD_WORDS])
    speaking = [t for t in _texts() if t.speaks(plain, head)]
    if not speaking:
        return None
    names = " and ".join(t.licence for t in speaking)
    if len(speaking) > 1:
        return Recognised(None, note=f"it holds the words of {names}")
    least, most = speaking[0].words
    if not least <= len(words) <= most:
        odd = f"it has words of {names}, but {len(words):,} of them: not that text alone"
        return Recognised(None, note=odd)
    return Recognised(names, _NAMED)


def _of_tag(tag: str, whole: list[str], rest: str) -> Recognised:
    """Recognise a file with a tag at its head; it may hold nothing else but that licence's text."""
    named = stated_licence(tag).licence
    if named and not rest and all(licence in _SYMBOL.findall(named) for licence in whole):
        return Recognised(named, _TAGGED)
    return Recognised(None, note=f"it is tagged {tag.strip()}, but says more: {rest[:80]!r}")


@functools.lru_cache(maxsize=512)
def recognise(text: str) -> Recognised:
    """Return which licence a file's text is.

    In this order: a refusal anywhere; a tag `SPDX-License-Identifier:` in the first five lines, or one
    licence's whole text, with nothing else but copyright lines and titles; phrases of one licence alone in a
    text of about its length; in at most 80 words, a sentence that names one, if no other may limit it.
    """
    words = folded(text).split()
    plain = " ".join(words)
    if refused := _refusal(plain):
        return Recognised(refused, _REFUSED)
    whole, rest = whole_texts(text)
    if tag := _TAG.search("\n".join(text.strip().splitlines()[:_HEAD_LINES])):
        return _of_tag(tag["licence"], whole, rest)
    if not whole:
        return _of_phrases(words, plain) or _of_notice(text, len(words))
    names = " and ".join(whole)
    if len(whole) > 1:
        return Recognised(None, note=f"it holds the words of {names}")
    if rest:
        return Recognised(None, note=f"it holds the words of {names} and more: {rest[:80]!r}")
    return Recognised(names, _WHOLE)
