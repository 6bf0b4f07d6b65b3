"""Licence texts: which licence a file is, by a whole text, a tag, telling phrases, a notice, or a refusal."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tasks.refine.licences.names import hedged, licence_tables, stated_licence
from tasks.refine.text.words import WORD, fold

_SLOT = re.compile(r"\{(\d+)\}")
_COPYRIGHT = re.compile(r"\A\W*(?:copyright\b|©|\(c\)|all rights reserved\b)", re.IGNORECASE)
_TAG_LINE = re.compile(
    r"\A\W*+SPDX-(?:License-Identifier|FileCopyrightText|FileContributor):[^\n]*", re.IGNORECASE
)
# A copyright line with an open end goes on in the next line; a name with its address may stand alone.
_OPEN = re.compile(r"(?:,|&|\band)\s*\Z", re.IGNORECASE)
_EMAIL = re.compile(r"\A\W{0,20}(?:[^\s@]{1,60} ){0,4}[<(]?[\w.+-]{1,90}@[\w.-]{1,255}[>)]?\W{0,20}")
_TERMS = re.compile(r"\b(?:terms|under|available|grants?|licen[cs]ors?)\b", re.IGNORECASE)
_MAX_COPYRIGHT_WORDS = 30
_IN_TITLES = frozenset({
    "the", "license", "licence", "licenses", "version", "v", "http", "https", "text", "full", "txt", "md",
})  # fmt: skip
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a licence's folded text: a pattern, and for a long part the SHA-256 of what it must match."""

    pattern: re.Pattern[str]
    sha256: str | None

    def find(self, text: str) -> Span | None:
        match = self.pattern.search(text)
        if match is None or any(hedged(words or "") for words in match.groups()):
            return None
        if self.sha256 and hashlib.sha256(match[0].encode()).hexdigest() != self.sha256:
            return None
        return match.span()


@dataclass(frozen=True, slots=True)
class _Whole:
    licence: str
    title: frozenset[str]
    parts: tuple[_Part, ...]
    also: tuple[_Part, ...]

    def spans(self, text: str) -> list[Span]:
        """Return where the text stands, nothing where any of its parts does not."""
        found = [part.find(text) for part in self.parts]
        if None in found:
            return []
        return [span for span in (*found, *(part.find(text) for part in self.also)) if span]


def _part(row: str | dict[str, Any]) -> _Part:
    if isinstance(row, dict):
        pattern = rf"\b{re.escape(row['from'])}\b.*?\b{re.escape(row['to'])}\b"
        return _Part(re.compile(pattern), row["sha256"])
    first, *pieces = _SLOT.split(row)
    pattern = r"\b" + re.escape(fold(first))
    for most, words in zip(pieces[::2], pieces[1::2], strict=True):
        pattern += rf"((?: [^ ]+){{0,{most}}}?) {re.escape(fold(words))}"
    return _Part(re.compile(pattern + r"\b"), None)


@functools.cache
def _wholes() -> tuple[_Whole, ...]:
    return tuple(
        _Whole(
            row["licence"],
            frozenset((*row["title"], *fold(row["licence"]).split())),
            tuple(map(_part, row["parts"])),
            tuple(map(_part, row.get("also", ()))),
        )
        for row in licence_tables()["whole"]
    )


def whole_texts(text: str) -> tuple[list[str], str]:
    """Return the licences whose whole text stands in a file, sorted, and the rest of the file.

    Punctuation, letter case and line breaks do not count; names of who grants or is not liable may differ.
    Copyright lines, SPDX tags and titles are not part of the rest.
    """
    tokens = list(WORD.finditer(text))
    words = [token[0].lower() for token in tokens]
    plain = " ".join(words)
    starts = list(itertools.accumulate((len(word) + 1 for word in words), initial=0))
    found = [(whole, spans) for whole in _wholes() if (spans := whole.spans(plain))]
    rest = text
    for start, end in sorted({span for _, spans in found for span in spans}, reverse=True):
        first, last = bisect_left(starts, start), bisect_left(starts, end) - 1
        rest = f"{rest[: tokens[first].start()]}\n{rest[tokens[last].end() :]}"
    title = _IN_TITLES.union(*(whole.title for whole, _ in found))
    return sorted({whole.licence for whole, _ in found}), beside(rest, title)


def beside(text: str, title: frozenset[str] = _IN_TITLES) -> str:
    """Return the lines of a text that are neither copyright lines, SPDX tags nor titles (of these words)."""
    left: list[str] = []
    names_go_on = False
    for line in text.splitlines():
        words = fold(line).split()
        if not words:
            continue
        owner = bool(_COPYRIGHT.match(line)) or names_go_on or bool(_EMAIL.fullmatch(line))
        if owner and len(words) <= _MAX_COPYRIGHT_WORDS and not (hedged(line) or _TERMS.search(line)):
            names_go_on = bool(_OPEN.search(line))
            continue
        names_go_on = False
        if not (title.issuperset(words) or _TAG_LINE.fullmatch(line)):
            left.append(line.strip())
    return "\n".join(left)


# Confidence of a text recognised whole, by a tag, by phrases or a sentence, and of a refusal.
_WHOLE, _TAGGED, _NAMED, _REFUSED = 0.95, 0.95, 0.8, 0.8
_HEAD_WORDS, _HEAD_LINES = 100, 5
# Most words of a file that only names its licence, and of its other sentences.
_NOTICE_WORDS, _BESIDE_WORDS = 80, 15
_SYMBOL = re.compile(r"[\w.-]+")
_TAG = re.compile(r"SPDX-License-Identifier:(?P<licence>[^\n*]+)")
_SENTENCE = re.compile(
    r"(?:licen[cs]ed|released|available|distributed)\s{1,20}under\s{1,20}(?:the\s{1,20})?(?:terms\s{1,20}of\s{1,20}(?:the\s{1,20})?)?"
    r"(?P<licence>[\w.+ -]{2,60}?)(?:\s{1,20}licen[cs]e)?(?:[.,;\n(]|\s{1,20}see\b|\Z)",
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

    def matches(self, text: str, head: str) -> bool:
        held = all(p in text for p in self.all) and all(p in head for p in self.head)
        return held and not any(p in text for p in self.none)


@functools.cache
def _texts() -> tuple[_Text, ...]:
    def read(row: dict[str, Any]) -> _Text:
        held, head, lacking = (tuple(map(fold, row.get(key, ()))) for key in ("all", "head", "none"))
        return _Text(row["licence"], held, head, lacking, tuple(row["words"]))

    return tuple(map(read, licence_tables()["texts"]))


def _refusal(text: str) -> str | None:
    refusals: dict[str, Iterable[str]] = licence_tables()["refusals"]
    return next((spdx for spdx, phrases in refusals.items() if any(fold(p) in text for p in phrases)), None)


def _of_notice(text: str, n_words: int) -> Recognised:
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
    head = " ".join(words[:_HEAD_WORDS])
    matching = [t for t in _texts() if t.matches(plain, head)]
    if not matching:
        return None
    names = " and ".join(t.licence for t in matching)
    if len(matching) > 1:
        return Recognised(None, note=f"it holds the words of {names}")
    least, most = matching[0].words
    if not least <= len(words) <= most:
        odd = f"it has words of {names}, but {len(words):,} of them: not that text alone"
        return Recognised(None, note=odd)
    return Recognised(names, _NAMED)


def _of_tag(tag: str, whole: list[str], rest: str) -> Recognised:
    """Recognise a file with a tag at its head; it may hold nothing else but that licence's text."""
    named = stated_licence(tag).licence
    if named and not rest and all(licence in _SYMBOL.findall(named) for licence in whole):
        return Recognised(named, _TAGGED)
    return Recognised(None, note=f"it is tagged {tag}, but says more: {rest[:80]!r}")


@functools.lru_cache(maxsize=512)
def recognise(text: str) -> Recognised:
    """Return which licence a file's text is.

    In this order: a refusal anywhere; a tag `SPDX-License-Identifier:` in the first five lines, or one
    licence's whole text, with nothing else but copyright lines and titles; phrases of one licence alone in a
    text of about its length; in at most 80 words, a sentence that names one, if no other may limit it.
    """
    words = fold(text).split()
    plain = " ".join(words)
    if refused := _refusal(plain):
        return Recognised(refused, _REFUSED)
    whole, rest = whole_texts(text)
    if tag := _TAG.search("\n".join(text.strip().splitlines()[:_HEAD_LINES])):
        return _of_tag(tag["licence"].strip(), whole, rest)
    if not whole:
        return _of_phrases(words, plain) or _of_notice(text, len(words))
    names = " and ".join(whole)
    if len(whole) > 1:
        return Recognised(None, note=f"it holds the words of {names}")
    if rest:
        return Recognised(None, note=f"it holds the words of {names} and more: {rest[:80]!r}")
    return Recognised(names, _WHOLE)
