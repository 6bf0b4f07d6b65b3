"""Compatibility of skills that serve the steps of a plan: how well one works after another, in [0, 1].

SkillWeaver's equation 4 and section 4.3. No row has a schema of its input and output, so verbs around the
words that name a type decide what a skill, a server or a step takes and gives.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.retrieve.routing.postings import function_terms, spelled_terms, term_sequence

Types = frozenset[str]
_TOKEN = re.compile(r"[a-z0-9]+|[.;:!?\n]", re.IGNORECASE)
# Names in which a word names no type, and addresses of links.
_NAMES = re.compile(r"\b(?:claude|vs) code\b|\bopen[- ]source\b|https?://\S+", re.IGNORECASE)
_READ = 1_000  # characters of a text; what it is for stands at its start
_TEXT: Types = frozenset({"text"})
_SOURCES, _TARGETS = frozenset({"from", "using"}), frozenset({"to", "into", "as"})
# What names and descriptions of servers have whatever they serve.
WORDS = Path(__file__).parent / "data" / "io_words.json"
ANY_TO_TEXT = 0.5  # whatever a step gives can be told in words
_COMMON_WORDS = """
mcp server model context protocol ai llm agent assistant claude tool api integration integrate skill use
using enable allow provide support access interact interaction connect service implementation based via
new multiple various any all other more
"""


@dataclass(frozen=True, slots=True)
class Used:
    """A row as it is used for a step: its types, and the terms of its name, description and category."""

    io: InputOutput
    terms: frozenset[int]
    category: frozenset[int]


def used(name: str, description: str, category: str | None, step: str = "") -> Used:
    """Return a row as it is used for a step, whose text narrows down what the row takes and gives."""
    told = f"{name}\n{description}"
    io = io_of(told).used_for(io_of(step)) if step else io_of(told)
    return Used(io, _terms(told), _terms(category or ""))


def compatibility(first: Used, then: Used) -> float:
    """Return the mean of three shares in [0, 1]: I/O, category and keywords (SkillWeaver, section 4.3).

    I/O: how well something that `first` gives passes for something that `then` takes. Category: the Jaccard
    similarity of their words. Keywords: of the terms of the row that has fewer, those that the other has too.
    """
    shared = len(first.terms & then.terms)
    fewest = min(len(first.terms), len(then.terms))
    either = len(first.category | then.category)
    parts = (
        handed_over(first.io.gives, then.io.takes),
        len(first.category & then.category) / either if either else 0.0,
        shared / fewest if fewest else 0.0,
    )
    return sum(parts) / len(parts)


def mean_compatibility(before: Sequence[Used], then: Used) -> float | None:
    """Return the mean compatibility of a row with rows before it; None without any."""
    return sum(compatibility(first, then) for first in before) / len(before) if before else None


def most_compatible(
    texts: Sequence[str], found: Sequence[Sequence[Mapping[str, Any]]], alpha: float = 0.5
) -> list[int]:
    """Return the place of the candidate that each step takes by SkillWeaver's equation 4, with `cosine`.

    `alpha` weighs the cosine; the rest is the mean compatibility with what the steps before took.
    """
    before, places = list[Used](), list[int]()
    for text, rows in zip(texts, found, strict=True):
        uses = [used(row["name"], row["description"] or "", row["category"], text) for row in rows]
        scores: list[float] = [
            alpha * row["cosine"] + (1 - alpha) * (mean_compatibility(before, use) or 0.0)
            for row, use in zip(rows, uses, strict=True)
        ]
        places.append(scores.index(max(scores)) if scores else 0)
        before += uses[places[-1] :][:1]
    return places


@functools.lru_cache(maxsize=8_192)
def _terms(text: str) -> frozenset[int]:
    """Return the stemmed terms of a text's start, without function words and words of every server."""
    return frozenset(term_sequence(text[:1_000])) - function_terms() - _common_terms()


@functools.cache
def _common_terms() -> frozenset[int]:
    return frozenset(term_sequence(_COMMON_WORDS))


@dataclass(frozen=True, slots=True)
class InputOutput:
    """The types that something takes and gives; neither is empty, since all take and give text."""

    takes: Types
    gives: Types

    def used_for(self, step: InputOutput) -> InputOutput:
        """Return the part that a step uses: of each side the types that the step names, else all."""
        return InputOutput(self.takes & step.takes or self.takes, self.gives & step.gives or self.gives)


@functools.lru_cache(maxsize=8_192)
def io_of(text: str) -> InputOutput:
    """Return what a text says that something takes and gives; `text` for a side of which it says nothing."""
    reader = _Reader()
    for token in _TOKEN.findall(_NAMES.sub(" ", text[:_READ]).lower()):
        reader.read(token)
    return InputOutput(frozenset(reader.takes) or _TEXT, frozenset(reader.gives) or _TEXT)


class _Reader:
    """Reads words in order; the last verb of a sentence decides where the types after it belong."""

    def __init__(self) -> None:
        self.takes: set[str] = set()
        self.gives: set[str] = set()
        self._verb, self._before, self._crossed = "", "", False

    def read(self, token: str) -> None:
        """Take in the next word or mark of punctuation."""
        if not token.isalnum():
            self._verb, self._before, self._crossed = "", "", False
        elif token in _TARGETS or token in _SOURCES:
            self._crossed = (self._verb, token in _TARGETS) in (("converting", True), ("making", False))
            self._before += ">" if token in _TARGETS and self._before else ""
        else:
            self._word(_known().get(_stem(token)))

    def _word(self, known: _Word | None) -> None:
        before, self._before = self._before, ""
        if known is None:
            return
        if known.verb:
            self._verb, self._crossed = known.verb, False
        self.takes |= known.takes
        self.gives |= known.gives
        if not known.named:
            return
        if before.endswith(">"):  # as in "text to speech"
            self._converted(before[:-1], known.named)
        elif not known.takes:
            self._add(known.named)
        self._before = known.named

    def _converted(self, source: str, target: str) -> None:
        self.takes.add(source)
        self.gives.add(target)
        self.gives.discard(source)
        self._verb, self._crossed = "converting", True

    def _add(self, named: str) -> None:
        goes_in = {"taking": True, "giving": False, "converting": True, "making": False}.get(self._verb)
        if goes_in is None or (goes_in is not self._crossed):
            self.takes.add(named)
        if goes_in is None or (goes_in is self._crossed):
            self.gives.add(named)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word as it is known: the type that it names, the kind of verb that it is, and what it implies."""

    named: str = ""
    verb: str = ""
    takes: Types = frozenset()
    gives: Types = frozenset()


@functools.cache
def io_words() -> Mapping[str, Any]:
    """Return the packaged words: `types`, `verbs`, `implied` and `coercions`; `note` says what they are."""
    held: Mapping[str, Any] = json.loads(WORDS.read_text("utf-8"))
    return held


@functools.cache
def _known() -> dict[str, _Word]:
    held = io_words()
    named = {stem: name for name, words in held["types"].items() for stem in _stems(words)}
    verbs = {stem: kind for kind, words in held["verbs"].items() for stem in _stems(words)}
    implied = {_stem(word): sides for word, sides in held["implied"].items()}
    return {
        stem: _Word(
            named.get(stem, ""),
            verbs.get(stem, ""),
            *(frozenset(side.split()) for side in implied.get(stem, ("", ""))),
        )
        for stem in {*named, *verbs, *implied}
    }


def _stems(words: str) -> Iterator[str]:
    return (_stem(word) for word in words.split())


@functools.lru_cache(maxsize=8_192)
def _stem(word: str) -> str:
    return next(spelled_terms(word), "")


def handed_over(gives: Iterable[str], takes: Iterable[str]) -> float:
    """Return how well the best of what is given passes for any of what is taken, in [0, 1]."""
    passes = _passes()
    return max((passes.get(pair, 0.0) for pair in itertools.product(gives, takes)), default=0.0)


@functools.cache
def _passes() -> dict[tuple[str, str], float]:
    """Return how well each type passes for another, over as many coercions as it takes."""
    types, coercions = io_words()["types"], io_words()["coercions"]
    passes = {(name, "text"): ANY_TO_TEXT for name in types}
    passes |= {(a, b): float(share) for a, b, share in coercions} | {(name, name): 1.0 for name in types}
    for via, a, b in itertools.product(types, repeat=3):
        through = passes.get((a, via), 0.0) * passes.get((via, b), 0.0)
        if through > passes.get((a, b), 0.0):
            passes[a, b] = through
    return passes
