"""Texts of a skill for a request, without its clause: description, head of the body, best window of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tasks.retrieve.routing.terms import function_terms, term_sequence
from tasks.retrieve.train.pairs.names import Names
from tasks.retrieve.train.pairs.pieces import READ, WORD, Piece, words_of

TextField = Literal["description", "head", "window"]
GRAM = 5

"""A run of so many words of the request, or the whole of a shorter one, stands in none of its texts."""

CHARACTERS = 1_000  # of a head or a window: about the 256 tokens that the default encoder reads
LEAST_WORDS = 8  # of a text: fewer say nothing of a skill
_RESCORED = 3  # windows that are cut and scored again


@dataclass(frozen=True, slots=True)
class SkillTexts:
    """The texts of one skill; `windows` are half-open spans of its body after the head, with their terms."""

    description: str
    body: str
    names: Names
    head: tuple[int, int] = (0, 0)
    windows: list[tuple[int, int]] = field(default_factory=list)
    terms: list[set[int]] = field(default_factory=list)

    @classmethod
    def of(cls, description: str, body: str, names: Names) -> SkillTexts:
        """Cut the first 20,000 characters of a body into a head and windows, at the ends of lines."""
        head, *windows = _spans(body[:READ]) or [(0, 0)]
        return cls(
            description, body, names, head, windows, [set(term_sequence(body[a:b])) for a, b in windows]
        )

    def of_request(self, query: str, piece: Piece) -> Iterator[tuple[TextField, str | None]]:
        """Yield each field with its text for a request; None where too little is left, or nothing of it.

        The piece's span is cut out, and wherever the words of the request or of the piece stand again, in a
        run of `GRAM`, they are cut too. A window shares a term with the request that the index could find.
        """
        grams = grams_of(query) | grams_of(piece.text)
        cut, nothing = (piece.start, piece.end), (0, 0)
        of_description, of_body = (nothing, cut) if piece.field == "body" else (cut, nothing)
        told = _without_span(self.description, (0, len(self.description)), of_description)
        yield "description", self._finished(told, grams, query)
        yield "head", self._finished(_without_span(self.body, self.head, of_body), grams, query)
        yield "window", self._window(query, grams, of_body)

    def _window(self, query: str, grams: frozenset[tuple[str, ...]], cut: tuple[int, int]) -> str | None:
        asked = set(term_sequence(query)) - function_terms()
        rarity = _rarity(asked, self.terms)
        scores = [sum(rarity[t] for t in asked & own) for own in self.terms]
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:_RESCORED]
        found: list[tuple[float, int, str]] = []
        for at in best:
            text = self._finished(_without_span(self.body, self.windows[at], cut), grams, query)
            shared = asked & set(term_sequence(text)) if text else set()
            if text and shared:
                found.append((-sum(rarity[t] for t in shared), at, text))
        return min(found)[2] if found else None

    def _finished(self, text: str, grams: frozenset[tuple[str, ...]], query: str) -> str | None:
        # A name that is taken out can join words that stood apart: cut again until nothing is found.
        text = without_grams(self.names.out_of_text(without_grams(text, grams), query), grams)
        return text.strip() if len(WORD.findall(text)) >= LEAST_WORDS else None


def _without_span(text: str, span: tuple[int, int], cut: tuple[int, int]) -> str:
    """Return a span of a text without what `cut`, another span of it, has in common with it."""
    start, end = span
    return text[start : min(max(cut[0], start), end)] + text[max(min(cut[1], end), start) : end]


def grams_of(text: str) -> frozenset[tuple[str, ...]]:
    """Return the runs of `GRAM` words of a text in lower case, or the whole of a shorter one."""
    words = words_of(text)
    n = min(GRAM, len(words))
    return frozenset(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) if words else frozenset()


def without_grams(text: str, grams: frozenset[tuple[str, ...]]) -> str:
    """Return a text without the words of these runs, wherever they stand; words keep their surroundings."""
    while covered := _covered(text, grams):
        kept, at = [], 0
        for start, end in covered:
            kept.append(text[at:start])
            at = end
        text = "".join([*kept, text[at:]])
    return text


def _covered(text: str, grams: frozenset[tuple[str, ...]]) -> list[tuple[int, int]]:
    words = list(WORD.finditer(text))
    lowered = [word[0].casefold() for word in words]
    sizes = {len(gram) for gram in grams}
    found = sorted(
        (i, i + n) for n in sizes for i in range(len(words) - n + 1) if tuple(lowered[i : i + n]) in grams
    )
    merged: list[tuple[int, int]] = []
    for first, last in found:
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return [(words[first].start(), words[last - 1].end()) for first, last in merged]


def _spans(body: str) -> list[tuple[int, int]]:
    """Return spans of at most `CHARACTERS`, of whole lines where no line is longer."""
    spans, start, at = [], 0, 0
    for line in body.splitlines(keepends=True):
        end = at + len(line)
        if end - start > CHARACTERS and at > start:
            spans.append((start, at))
            start = at
        while end - start > CHARACTERS:
            spans.append((start, start + CHARACTERS))
            start += CHARACTERS
        at = end
    return [*spans, (start, at)] if at > start else spans


def _rarity(asked: set[int], windows: list[set[int]]) -> Mapping[int, float]:
    """Return the weight of each term: the rarer among the windows, the more."""
    held = Counter(term for own in windows for term in asked & own)
    return {term: math.log(1 + len(windows) / held[term]) if held[term] else 0.0 for term in asked}
