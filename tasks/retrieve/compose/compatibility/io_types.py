"""IO types: what a skill, a server or a step takes and what it gives, read off its words.

No row has a schema of its input and output, so verbs around the words that name a type decide.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tasks.retrieve.compose.compatibility.io_words import (
    ANY_TO_TEXT,
    COERCIONS,
    CONVERTING,
    GIVING,
    IMPLIED,
    MAKING,
    TAKING,
    TYPES,
)
from tasks.retrieve.routing.postings import spelled_terms

Types = frozenset[str]
_TOKEN = re.compile(r"[a-z0-9]+|[.;:!?\n]", re.IGNORECASE)
# Names in which a word names no type, and addresses of links.
_NAMES = re.compile(r"\b(?:claude|vs) code\b|\bopen[- ]source\b|https?://\S+", re.IGNORECASE)
_READ = 1_000  # characters of a text; what it is for stands at its start
_TEXT: Types = frozenset({"text"})
_SOURCES, _TARGETS = frozenset({"from", "using"}), frozenset({"to", "into", "as"})


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
def _known() -> dict[str, _Word]:
    """Return the known words by their stems."""
    named = {stem: name for name, words in TYPES.items() for stem in _stems(words)}
    kinds = {"taking": TAKING, "giving": GIVING, "converting": CONVERTING, "making": MAKING}
    verbs = {stem: kind for kind, words in kinds.items() for stem in _stems(words)}
    implied = {_stem(word): sides for word, sides in IMPLIED.items()}
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
    passes = {(name, "text"): ANY_TO_TEXT for name in TYPES} | COERCIONS | {(n, n): 1.0 for n in TYPES}
    for via, a, b in itertools.product(TYPES, repeat=3):
        through = passes.get((a, via), 0.0) * passes.get((via, b), 0.0)
        if through > passes.get((a, b), 0.0):
            passes[a, b] = through
    return passes
