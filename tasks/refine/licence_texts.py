"""Which licence a text is, by phrases that stand in no other, or that it refuses what licences grant."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.refine.licence_names import folded, licence_tables, stated_licence

# A text recognised whole, one that names its licence in a line of its own or in a sentence, and a refusal.
_WHOLE, _TAGGED, _NAMED, _REFUSED = 0.95, 0.95, 0.8, 0.8
_HEAD_WORDS = 100
_NOTICE_WORDS = 80
_TAG = re.compile(r"SPDX-License-Identifier:[ \t]*(?P<licence>[^\n*]+)")
_SENTENCE = re.compile(
    r"(?:licen[cs]ed|released|available|distributed)\s+under\s+(?:the\s+)?(?:terms\s+of\s+(?:the\s+)?)?"
    r"(?P<licence>[\w.+ -]{2,60}?)(?:\s+licen[cs]e)?(?:[.,;\n(]|\s+see\b|\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Recognised:
    """The licence a text is (an SPDX expression, None: not recognised), how sure (0 to 1), or why not."""

    licence: str | None
    confidence: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Text:
    """A licence's phrases, folded, and the least and most words that its text has."""

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
    def phrases(row: dict[str, list[str]], key: str) -> tuple[str, ...]:
        return tuple(folded(phrase) for phrase in row.get(key, ()))

    return tuple(
        _Text(
            row["licence"],
            phrases(row, "all"),
            phrases(row, "head"),
            phrases(row, "none"),
            tuple(row["words"]),
        )
        for row in licence_tables()["texts"]
    )


def _refusal(text: str) -> str | None:
    refusals: dict[str, Iterable[str]] = licence_tables()["refusals"]
    return next((spdx for spdx, phrases in refusals.items() if any(folded(p) in text for p in phrases)), None)


def _of_notice(text: str, n_words: int) -> Recognised:
    """Read a short file that names its licence instead of giving its text."""
    sentence = _SENTENCE.search(text)
    named = stated_licence(sentence["licence"]).licence if sentence and n_words <= _NOTICE_WORDS else None
    named = named or (stated_licence(text).licence if n_words <= _NOTICE_WORDS else None)
    return Recognised(named, _NAMED) if named else Recognised(None, note="its text is of no known licence")


@functools.lru_cache(maxsize=512)
def recognise(text: str) -> Recognised:
    """Return which licence a file's text is.

    A refusal counts wherever it stands; then a line `SPDX-License-Identifier:`; then phrases that stand in
    one licence alone, in a text of about that licence's length; at last, in at most 80 words, the sentence
    that names one. Several licences in one text, and one with much added, are not taken for any.
    """
    words = folded(text).split()
    plain = " ".join(words)
    if refused := _refusal(plain):
        return Recognised(refused, _REFUSED)
    tag = _TAG.search(text)
    if tag and (named := stated_licence(tag["licence"]).licence):
        return Recognised(named, _TAGGED)
    head = " ".join(words[:_HEAD_WORDS])
    speaking = [t for t in _texts() if t.speaks(plain, head)]
    if not speaking:
        return _of_notice(text, len(words))
    names = " and ".join(t.licence for t in speaking)
    if len(speaking) > 1:
        return Recognised(None, note=f"it holds the words of {names}")
    least, most = speaking[0].words
    if not least <= len(words) <= most:
        return Recognised(
            None, note=f"it has words of {names}, but {len(words):,} of them: not that text alone"
        )
    return Recognised(names, _WHOLE)
