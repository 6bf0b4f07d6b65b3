"""Dependencies between the steps of a task: by what the task model makes of each pair of steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.steps import DraftStep
from tasks.retrieve.compose.decompose.task_model import BACKWARD, NEITHER, ONWARD, TaskModel
from tasks.retrieve.compose.plan import Dependency, PlannedTask, planned, reduced

_CONDITION = re.compile(
    r"\b(?:if|unless|in case|provided|whenever|as soon as|should)\b|^\W*(?:when|once|where)\b", re.IGNORECASE
)
_ORDER = re.compile(r"\b(?:then|after|once|before|next|finally|first|last)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(?:if|unless|in case|provided|whenever|as soon as|when|once)\b[^,;.]{3,120}", re.IGNORECASE
)


def ordered(task: str, draft: Draft, model: TaskModel) -> PlannedTask:
    """Return the order of a draft's steps; the likeliest dependencies are kept first.

    Where the draft's steps stand in an order in which they can be done, none needs a later one.
    """
    steps, found = draft.steps, list[tuple[float, Dependency]]()
    told = sorted(range(len(steps)), key=lambda k: (steps[k].spans[0], k))
    shares = model.pairs(model.read(task), [steps[k].spans for k in told])
    for i, a in enumerate(told):
        for j, b in list(enumerate(told))[i + 1 :]:
            neither, onward, backward = (float(shares[i, j, kind]) for kind in (NEITHER, ONWARD, BACKWARD))
            if draft.in_order:  # what one needs of the other can only be what the order allows
                either = onward + backward
                onward, backward = (either, 0.0) if a < b else (0.0, either)
            if max(onward, backward) > neither:
                before, after = (a, b) if onward >= backward else (b, a)
                why = _dependency(task, steps, before, after)
                found.append((max(onward, backward), why))
    found.sort(key=lambda each: (-each[0], each[1].after, each[1].before))
    return reduced(planned(len(steps), [each for _, each in found]), len(steps))


def _dependency(task: str, steps: Sequence[DraftStep], before: int, after: int) -> Dependency:
    first, then = steps[before], steps[after]
    later = first.spans[0] > then.spans[0]
    if _CONDITION.search(then.words) or (later and _CONDITION.search(first.words)):
        return Dependency(before, after, "condition", "done only if or when the other is")
    if later:
        return Dependency(before, after, "order", "told later, and needed first")
    if _ORDER.search(_lead(task, steps, after) + then.words):
        return Dependency(before, after, "order", "told to follow")
    return Dependency(before, after, "data", "works on what the other gives")


def _lead(task: str, steps: Sequence[DraftStep], place: int) -> str:
    """Return what stands between a step and the one told before it."""
    start = steps[place].spans[0][0]
    ends = [end for step in steps for _, end in step.spans if end <= start]
    return task[max(ends, default=0) : start]


def condition_of(text: str) -> str | None:
    """Return the words of a step that say on what it depends; None if there are none."""
    found = _CLAUSE.search(text)
    return " ".join(found[0].split()) if found else None
