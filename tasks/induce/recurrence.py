"""Recurrence: the default inducer, which needs no model: equal windows but for their slots are one skill.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391); what differs between tasks becomes an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.induce.bindings.bind import bodies, windows
from tasks.induce.skills.actions import MOST, Body
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.outline import Outline
from tasks.induce.trajectories.record import Trajectory

Target = tuple[str, str | None, str | None]
_BEFORE, _NEXT = 3, 2  # actions of a moment's history, and of what was done next
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]+")
_FIELD = re.compile(r'"(\w+)": "([a-z][a-z _()-]{1,30})"')  # a word that a record has: `"status": "pending"`
_TOOL = re.compile(r"(\w+) returned: ")


@dataclass(frozen=True, slots=True)
class Situation:
    """What an agent meets at a step: `marks` are those of the state, `before` the last actions, newest last.

    `page` is None where the domain is one of tools.
    """

    task: str
    marks: frozenset[str]
    before: tuple[Target, ...]
    page: Outline | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a successful trajectory: the situation, what was done next, and the skills that do it."""

    trajectory_id: str
    task_id: str
    domain: str
    situation: Situation
    after: tuple[Target, ...]
    bodies: tuple[Body, ...]


def moments(trajectory: Trajectory, most: int = MOST) -> list[Moment]:
    """Return the moments of a trajectory: steps that speak to nobody, with skills of 2 to `most` actions."""
    steps, _ = cleaned(trajectory)
    return [
        Moment(
            trajectory.trajectory_id, trajectory.task_id, trajectory.domain,
            situation_at(trajectory.task, steps, start), _after(steps, start),
            tuple(_bodies(trajectory.task, steps, start, most)),
        )
        for start, step in enumerate(steps)
        if not step.action.speaks
    ]  # fmt: skip


def _bodies(task: str, steps: Sequence[CleanStep], start: int, most: int) -> Iterator[Body]:
    for length in windows(steps, start, most):
        yield from bodies(task, steps, start, length)


def _after(steps: Sequence[CleanStep], start: int) -> tuple[Target, ...]:
    done = []
    for step in steps[start : start + _NEXT]:
        if step.action.speaks:
            break
        done.append(step.target)
    return tuple(done)


def situation_at(task: str, steps: Sequence[CleanStep], place: int) -> Situation:
    """Return the situation at a step of a trajectory; what is done there and later is not in it."""
    before = tuple(step.target for step in steps[max(0, place - _BEFORE) : place])
    return Situation(task, marks_of(steps[place]), before, steps[place].outline)


def marks_of(step: CleanStep) -> frozenset[str]:
    """Return what tells a state from others.

    Of a page that is its elements, title and address, of a tool's result which tool and the words of its
    fields, of what a person said the words.
    """
    if step.outline is not None:
        elements = {f"{role} {label}" for role, label in step.outline.counts}
        return frozenset(elements | {f"title {step.title}", f"url {_NUMBER.sub('#', step.url)}"})
    tool = _TOOL.match(step.observation)
    if tool is None:
        return frozenset({"said", *(f"said {word}" for word in _WORD.findall(step.observation.lower()))})
    fields = _FIELD.findall(step.observation)
    return frozenset({f"from {tool[1]}", *(f"{name} is {value}" for name, value in fields)})
