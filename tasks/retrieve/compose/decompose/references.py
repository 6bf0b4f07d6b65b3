"""References: fills in what "it" and "there" mean, so that a step's text can be searched with alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.retrieve.compose.decompose.steps import Span, leads, words_of

_REFERS = re.compile(
    r"\b(?:it|its|it's|them|they|their|that|this|these|those|there|both|one|he|she|him|her|his|the (?:result"
    r"|results|outcome|same|whole|lot)|all of (?:it|that|them))\b",
    re.IGNORECASE,
)
_STOP = re.compile(
    r"\s*(?:[,;:.!?(—–]|\s(?:on|in|from|to|into|with|at|by|for|according|using|via|through|that|which|who|whose|of"
    r"|about|if|when|once|and|or|so|until)\b)",
    re.IGNORECASE,
)
_VERB = re.compile(r"\S+\s*(?:(?:up|down|out|off|in|on|over|back|away|through)\s+)?")  # the first word
_MOST_CONTEXT, _MOST_WORDS = 160, 6


def filled(task: str, steps: Sequence[Sequence[Span]], number: int) -> str:
    """Return a step's text; where it refers back, with what it most likely refers to in brackets.

    That is the part of the task right before the step that stands in no step, else the thing that the step
    before is about.
    """
    spans = steps[number]
    text = words_of(task, spans)
    if not _REFERS.search(text):
        return text
    meant = _context(task, steps, number) or (_thing(task, steps[number - 1]) if number else "")
    return f"{text} ({meant})" if meant else text


def _context(task: str, steps: Sequence[Sequence[Span]], number: int) -> str:
    words = " ".join(leads(task, steps[: number + 1])[-1].split()).strip(" ,;:.!?-–—")
    return words if len(words.split()) > 2 and len(words) <= _MOST_CONTEXT else ""  # fewer only join


def _thing(task: str, spans: Sequence[Span]) -> str:
    """Return what a step is about: the words after its verb, up to the first that only relates them."""
    text = " ".join(task[spans[0][0] : spans[0][1]].split())
    rest = _VERB.sub("", text, count=1)
    stop = _STOP.search(f" {rest}")
    words = rest[: max(stop.start() - 1, 0)] if stop else rest
    return " ".join(words.split()[:_MOST_WORDS])
