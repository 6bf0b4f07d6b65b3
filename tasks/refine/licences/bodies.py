"""Bodies of licence texts, compared word by word: which licence a file is, and whether it says more."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from tasks.refine.licences.names import folded, hedged, licence_tables

_TOKEN = re.compile(r"[^\W_]+")
_SLOT = re.compile(r"\{(\d+)\}")
_COPYRIGHT = re.compile(r"\W*(?:copyright\b|©|\(c\)|all rights reserved\b)", re.IGNORECASE)
_TAG_LINE = re.compile(
    r"\W*SPDX-(?:License-Identifier|FileCopyrightText|FileContributor):[^\n]*", re.IGNORECASE
)
# A copyright line with an open end goes on in the next line; a name with its address may stand alone.
_OPEN = re.compile(r"(?:,|&|\band)\s*\Z", re.IGNORECASE)
_EMAIL = re.compile(r"\W*(?:[^\s@]+ ){0,4}[<(]?[\w.+-]+@[\w.-]+[>)]?\W*")
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
    pattern = r"\b" + re.escape(folded(first))
    for most, words in zip(pieces[::2], pieces[1::2], strict=True):
        pattern += rf"((?: [^ ]+){{0,{most}}}?) {re.escape(folded(words))}"
    return _Part(re.compile(pattern + r"\b"), None)


@functools.cache
def _wholes() -> tuple[_Whole, ...]:
    return tuple(
        _Whole(
            row["licence"],
            frozenset((*row["title"], *folded(row["licence"]).split())),
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
    tokens = list(_TOKEN.finditer(text))
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
        words = folded(line).split()
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
