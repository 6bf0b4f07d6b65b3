"""Dependencies between the steps of a task, and the order that keeps them.

The task model and what the steps' words say decide together which step needs which.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.refine.text.words import CONTRACTION
from tasks.retrieve.compose.drafts import Draft, DraftStep, Span, leads, told_order, words_of
from tasks.retrieve.compose.task_model import BACKWARD, ONWARD, TaskModel

KINDS = ("data", "order", "condition")
FILE = Path(__file__).parent / "data" / "dependencies-2.json"
CLASSES = 3  # NEITHER, ONWARD, BACKWARD
# F1 is largest where one is taken that is half as likely as that F1 is high (Lipton, Elkan and
# Naryanaswamy, "Optimal Thresholding of Classifiers to Maximize F1 Measure", ECML 2014, theorem 1).
_LEAST = 0.42
_CONDITION = re.compile(
    r"\b(?:if|unless|in case|provided|whenever|as soon as|should)\b|^\W*(?:when|once|where)\b", re.IGNORECASE
)
ORDER = re.compile(r"\b(?:then|after|once|before|next|finally|first|last)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?:\b(?:if|unless|in case|provided|whenever|as soon as|when)\b"
    # "at once", "once a week" and "once more" tell no condition.
    r"|(?:^|(?<=[,;:(]\s))once\b(?!\s+(?:an?|per|and|more|again)\b))[^,;.…]{3,120}",
    re.IGNORECASE,
)
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


@dataclass(frozen=True, slots=True)
class Dependency:
    """A direct dependency between steps by their places in the task: `after` needs `before`, and why."""

    before: int
    after: int
    kind: str  # one of KINDS
    why: str


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The order of a task's steps: `order` holds places, `groups` places that may be done side by side."""

    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    dependencies: tuple[Dependency, ...]


def planned(steps: int, found: Iterable[Dependency]) -> PlannedTask:
    """Return an order of steps that keeps the dependencies.

    Of dependencies that lead back to where they began, the later one in `found` is dropped, so that there is
    always an order. Steps that wait for the same stand in one group; ties are broken by place.
    """
    by_pair: dict[tuple[int, int], Dependency] = {}
    closed: set[tuple[int, int]] = set()
    for one in found:
        if one.before != one.after and (one.after, one.before) not in closed:
            by_pair.setdefault((one.before, one.after), one)
            ahead = {one.before} | {a for a, b in closed if b == one.before}
            behind = {one.after} | {b for a, b in closed if a == one.after}
            closed |= set(product(ahead, behind))
    kept = list(by_pair.values())
    groups = _groups(steps, kept)
    order = tuple(place for group in groups for place in group)
    ordered = sorted(kept, key=lambda d: (order.index(d.after), order.index(d.before)))
    return PlannedTask(order, groups, tuple(ordered))


def _groups(steps: int, found: Sequence[Dependency]) -> tuple[tuple[int, ...], ...]:
    """Return the steps in groups: each needs one of the group before, and none of its own."""
    sorter = TopologicalSorter(
        {place: [d.before for d in found if d.after == place] for place in range(steps)}
    )
    sorter.prepare()
    groups = []
    while ready := sorter.get_ready():
        groups.append(tuple(sorted(ready)))
        sorter.done(*ready)
    return tuple(groups)


def closure(edges: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return a graph's edges, and every edge that follows from them (its transitive closure)."""
    closed = set(edges)
    while more := {(a, d) for a, b in closed for c, d in closed if b == c} - closed:
        closed |= more
    return frozenset(closed)


def reduced(plan: PlannedTask, steps: int) -> PlannedTask:
    """Return a plan without dependencies that follow from others."""
    closed = closure((d.before, d.after) for d in plan.dependencies)
    between = {(a, d) for a, b in closed for c, d in closed if b == c}
    return planned(steps, [d for d in plan.dependencies if (d.before, d.after) not in between])


@dataclass(frozen=True, slots=True)
class StepText:
    """A step as dependencies are found from: its text, where it stands, and what stands right before."""

    text: str
    span: Span
    lead: str


@dataclass(frozen=True, slots=True)
class PairModel:
    """The weights of features by name, each `(neither, onward, backward)`."""

    weights: Mapping[str, tuple[float, float, float]]

    def shares(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the probability of each class for a pair of steps, shape `(3,)`."""
        known = [self.weights[name] for name in dict.fromkeys(names) if name in self.weights]
        scores = np.sum(known, axis=0) if known else np.zeros(CLASSES)
        scores = np.exp(scores - np.max(scores))
        return np.asarray(scores / scores.sum())


@functools.lru_cache(maxsize=1)
def packaged_pairs() -> PairModel:
    """Return the packaged weights."""
    held = json.loads(FILE.read_text("utf-8"))
    return PairModel({name: (row[0], row[1], row[2]) for name, row in held.items()})


def step_texts(task: str, steps: Sequence[DraftStep]) -> list[StepText]:
    """Return steps, in the order in which the task begins them, with what stands right before each."""
    before = leads(task, [step.spans for step in steps])
    return [
        StepText(words_of(task, step.spans), (step.spans[0][0], step.spans[-1][1]), lead)
        for step, lead in zip(steps, before, strict=True)
    ]


def ordered(task: str, draft: Draft, model: TaskModel) -> PlannedTask:
    """Return the order of a draft's steps; the likeliest dependencies are kept first.

    Where the draft's steps stand in an order in which they can be done, none needs a later one.
    """
    steps, found = draft.steps, list[tuple[float, Dependency]]()
    told = told_order(steps)
    texts = step_texts(task, [steps[k] for k in told])
    shares = model.pairs(model.read(task), [steps[k].spans for k in told])
    by_words = packaged_pairs()
    for i, a in enumerate(told):
        for j, b in list(enumerate(told))[i + 1 :]:
            both = np.sqrt(shares[i, j] * by_words.shares(pair_features(texts, i, j)))
            onward, backward = (float(both[kind] / both.sum()) for kind in (ONWARD, BACKWARD))
            if draft.in_order:  # what one needs of the other can only be what the order allows
                onward, backward = (1.0, 0.0) if a < b else (0.0, 1.0)
            if (likely := float(1 - both[0] / both.sum())) > _LEAST:
                before, after = (a, b) if onward >= backward else (b, a)
                lead = texts[told.index(after)].lead
                found.append((likely, _dependency(steps, before, after, lead)))
    found.sort(key=lambda each: (-each[0], each[1].after, each[1].before))
    return reduced(planned(len(steps), [each for _, each in found]), len(steps))


def _dependency(steps: Sequence[DraftStep], before: int, after: int, lead: str) -> Dependency:
    first, then = steps[before], steps[after]
    later = first.spans[0] > then.spans[0]
    if _CONDITION.search(then.words) or (later and _CONDITION.search(first.words)):
        return Dependency(before, after, "condition", "done only if or when the other is")
    if later:
        return Dependency(before, after, "order", "told later, and needed first")
    if ORDER.search(lead + then.words):
        return Dependency(before, after, "order", "told to follow")
    return Dependency(before, after, "data", "works on what the other gives")


def condition_of(text: str) -> str | None:
    """Return the words of a step that say on what it depends; None if there are none."""
    found = _CLAUSE.search(text)
    return " ".join(found[0].split()) if found else None


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
