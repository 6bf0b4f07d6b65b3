"""Dependencies between the steps of a task: by the task model and by what their words say, together."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.steps import DraftStep, leads, words_of
from tasks.retrieve.compose.decompose.task_model import BACKWARD, ONWARD, TaskModel
from tasks.retrieve.compose.pair_features import pair_features
from tasks.retrieve.compose.plan import Dependency, PlannedTask, StepText, planned, reduced

FILE = Path(__file__).parent / "data" / "dependencies-2.json"
CLASSES = 3  # NEITHER, ONWARD, BACKWARD
# F1 is largest where one is taken that is half as likely as that F1 is high (Lipton, Elkan and
# Naryanaswamy, "Optimal Thresholding of Classifiers to Maximize F1 Measure", ECML 2014, theorem 1).
_LEAST = 0.42
_CONDITION = re.compile(
    r"\b(?:if|unless|in case|provided|whenever|as soon as|should)\b|^\W*(?:when|once|where)\b", re.IGNORECASE
)
_ORDER = re.compile(r"\b(?:then|after|once|before|next|finally|first|last)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?:\b(?:if|unless|in case|provided|whenever|as soon as|when)\b"
    # "at once", "once a week" and "once more" tell no condition.
    r"|(?:^|(?<=[,;:(]\s))once\b(?!\s+(?:an?|per|and|more|again)\b))[^,;.…]{3,120}",
    re.IGNORECASE,
)


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
def packaged_pairs(file: Path = FILE) -> PairModel:
    """Return the packaged weights."""
    held = json.loads(file.read_text("utf-8"))
    return PairModel({name: (row[0], row[1], row[2]) for name, row in held.items()})


def step_texts(task: str, steps: Sequence[DraftStep]) -> list[StepText]:
    """Return steps, in the order in which the task begins them, with what stands right before each."""
    before = leads(task, [step.spans for step in steps])
    return [
        StepText(words_of(task, step.spans), (step.spans[0][0], step.spans[-1][1]), lead)
        for step, lead in zip(steps, before, strict=True)
    ]


def ordered(task: str, draft: Draft, model: TaskModel, pairs: PairModel | None = None) -> PlannedTask:
    """Return the order of a draft's steps; the likeliest dependencies are kept first.

    Where the draft's steps stand in an order in which they can be done, none needs a later one.
    """
    steps, found = draft.steps, list[tuple[float, Dependency]]()
    told = sorted(range(len(steps)), key=lambda k: (steps[k].spans[0], k))
    texts = step_texts(task, [steps[k] for k in told])
    shares = model.pairs(model.read(task), [steps[k].spans for k in told])
    by_words = pairs or packaged_pairs()
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
    if _ORDER.search(lead + then.words):
        return Dependency(before, after, "order", "told to follow")
    return Dependency(before, after, "data", "works on what the other gives")


def condition_of(text: str) -> str | None:
    """Return the words of a step that say on what it depends; None if there are none."""
    found = _CLAUSE.search(text)
    return " ".join(found[0].split()) if found else None
