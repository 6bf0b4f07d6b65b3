"""Dependencies between the steps of a task: by what refers back, by markers, by what fetches and delivers."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.retrieve.compose.decompose.draft import DraftStep
from tasks.retrieve.compose.pair_features import pair_features
from tasks.retrieve.compose.plan import Dependency, PlannedTask, StepText, planned, reduced

FILE = Path(__file__).parent / "data" / "dependencies-1.json"
# What a pair is, in the order of the weights: neither needs the other, the later the earlier, or reverse.
NEITHER, ONWARD, BACKWARD = 0, 1, 2
CLASSES = 3
_CONDITION = re.compile(
    r"\b(?:if|unless|in case|provided|whenever|as soon as|should)\b|^\W*(?:when|once|where)\b", re.IGNORECASE
)
_ORDER = re.compile(r"\b(?:then|after|once|before|next|finally|first|last)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(?:if|unless|in case|provided|whenever|as soon as|when|once)\b[^,;.]{3,120}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class PairModel:
    """The weights of features by name, each `(neither, onward, backward)`."""

    weights: Mapping[str, tuple[float, float, float]]

    def shares(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the probability of each class for a pair of steps, shape `(3,)`."""
        known = [self.weights[name] for name in set(names) if name in self.weights]
        scores = np.sum(known, axis=0) if known else np.zeros(CLASSES)
        scores = np.exp(scores - np.max(scores))
        return np.asarray(scores / scores.sum())


@functools.lru_cache(maxsize=1)
def packaged_pairs(file: Path = FILE) -> PairModel:
    """Return the packaged weights."""
    held = json.loads(file.read_text("utf-8"))["weights"]
    return PairModel({name: (row[0], row[1], row[2]) for name, row in held.items()})


def step_texts(task: str, steps: Sequence[DraftStep]) -> list[StepText]:
    """Return steps, in the order in which the task begins them, with what stands right before each."""
    found, end = [], 0
    for step in steps:
        start, last = step.spans[0][0], step.spans[-1][1]
        found.append(StepText(step.text, (start, last), task[end:start]))
        end = max(end, last)
    return found


def ordered(task: str, steps: Sequence[DraftStep], model: PairModel | None = None) -> PlannedTask:
    """Return the order of a task's steps; the likeliest dependencies are kept first."""
    texts, pairs = step_texts(task, steps), model or packaged_pairs()
    found: list[tuple[float, Dependency]] = []
    for i in range(len(texts)):
        for j in range(i + 1, len(texts)):
            shares = pairs.shares(pair_features(texts, i, j))
            best = int(np.argmax(shares))
            if best != NEITHER:
                before, after = (i, j) if best == ONWARD else (j, i)
                found.append((float(shares[best]), _dependency(texts, before, after)))
    found.sort(key=lambda each: (-each[0], each[1].after, each[1].before))
    return reduced(planned(len(texts), [each for _, each in found]), len(texts))


def _dependency(texts: Sequence[StepText], before: int, after: int) -> Dependency:
    told = texts[after]
    if _CONDITION.search(told.text) or (before > after and _CONDITION.search(texts[before].text)):
        return Dependency(before, after, "condition", "done only if or when the other is")
    if before > after:
        return Dependency(before, after, "order", "told later, and needed first")
    if re.search(
        r"\b(?:then|after|once|before|next|finally|first|last)", told.lead + told.text, re.IGNORECASE
    ):
        return Dependency(before, after, "order", "told to follow")
    return Dependency(before, after, "data", "works on what the other gives")


def condition_of(text: str) -> str | None:
    """Return the words of a step that say on what it depends; None if there are none."""
    found = _CLAUSE.search(text)
    return " ".join(found[0].split()) if found else None
