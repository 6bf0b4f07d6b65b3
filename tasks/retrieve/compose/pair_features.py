"""Pair features: of two steps of a task, that tell whether one needs the other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.refine.text.words import CONTRACTION
from tasks.retrieve.compose.plan import StepText

_FETCH_WORDS = """
    analyse analyze ask audit browse calculate check collect compare compute count crawl detect download
    estimate examine explore extract fetch find forecast get give grab identify inspect list load look
    measure monitor profile pull query read record run scan scrape search see show simulate summon take
    test track transcribe validate watch what which who whose where when how is are does do did has have
    will would can could any
"""
_FETCH = frozenset(_FETCH_WORDS.split())
_DELIVER_WORDS = """
    add alert announce append archive attach book call comment commit copy create deploy draft drop
    email enter file forward insert invite log mail message move note notify open order pay pin ping
    place post publish push put raise register remind reply report save schedule send set share store
    submit sync tell text tweet update upload warn write wants want needs need belongs goes go
"""
_DELIVER = frozenset(_DELIVER_WORDS.split())
_ALL = re.compile(
    r"\b(?:all|both|everything|the lot|the whole|each of them|these|the two|the three|together)\b", re.I
)
_THAT = re.compile(
    r"\b(?:it|its|them|their|they|that|this|those|there|one|results?|outcome|what comes|the same"
    r"|he|she|him|her)\b",
    re.I,
)
_IF = re.compile(
    r"^\W*(?:and\s+|but\s+)?(?:if|unless|should|in case|provided|otherwise|when|whenever|where)\b|\bif\b",
    re.I,
)
_ONCE = re.compile(
    r"\b(?:once|as soon as|after|afterwards|when|until|then|finally|at the end|lastly)\b", re.I
)
_FIRST = re.compile(r"\bfirst\b|\bbefore\b|\bbeforehand\b", re.I)
_BACK = re.compile(
    r"^\W*(?:as soon as|once|after|when|whenever|if|unless|whose|which|where|provided)\b", re.I
)
_MORE = re.compile(r"\b(?:also|too|as well|meanwhile|besides|in the meantime)\b", re.I)


def pair_features(steps: Sequence[StepText], i: int, j: int) -> list[str]:
    """Return the names of the features that hold of steps `i` before `j`, as the task tells them."""
    one, other = steps[i], steps[j]
    names = [f"apart={min(j - i, 3)}", f"does={_does(one.text)}>{_does(other.text)}"]
    names += [f"one:{name}" for name in _marks(one)] + [f"other:{name}" for name in _marks(other)]
    names += [f"apart={min(j - i, 3)}:other:{name}" for name in _marks(other)]
    names += [f"apart={min(j - i, 3)}:does={_does(one.text)}>{_does(other.text)}"]
    if i == 0:
        names.append("one:is-first")
    if j == len(steps) - 1:
        names += [
            "other:is-last",
            *(f"last:{name}" for name in _marks(other)),
            f"last:does={_does(other.text)}",
        ]
    between = steps[i + 1 : j]
    names += [f"between:{_does(step.text)}" for step in between]
    names += [f"between:{name}" for step in between for name in _marks(step)]
    return names


def _does(text: str) -> str:
    """Return whether a step's first telling word fetches or delivers something."""
    for word in CONTRACTION.findall(text.lower())[:6]:
        if word in _DELIVER:
            return "deliver"
        if word in _FETCH:
            return "fetch"
    return "other"


def _marks(step: StepText) -> list[str]:
    said = {
        "all": _ALL, "that": _THAT, "if": _IF, "once": _ONCE, "first": _FIRST, "more": _MORE, "back": _BACK,
    }  # fmt: skip
    names = [name for name, pattern in said.items() if pattern.search(step.text)]
    if _ONCE.search(step.lead):
        names.append("then")
    if any(sign in step.lead for sign in ".!?"):
        names.append("sentence")
    if ":" in step.lead:
        names.append("colon")
    return names or ["plain"]
