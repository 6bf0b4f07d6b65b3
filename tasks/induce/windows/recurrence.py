"""Recurrence: the default inducer, which needs no model: equal windows but for their slots are one skill.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391); what differs between tasks becomes an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.induce.bindings.bind import bodies, windows
from tasks.induce.skills.actions import Body, Granularity
from tasks.induce.skills.wording import page_of
from tasks.induce.trajectories.cleaning import CleanStep, answering_tool, cleaned
from tasks.induce.trajectories.outline import PageOutline, outline_of
from tasks.induce.trajectories.record import Trajectory
from tasks.refine.text.words import LETTERS

Target = tuple[str, str | None, str | None]
_BEFORE, _NEXT = 3, 2  # actions of a moment's history, and of what was done next
_NUMBER = re.compile(r"\d+")
_FIELD = re.compile(r'"(\w+)": "([a-z][a-z _()-]{1,30})"')  # a word that a record has: `"status": "pending"`


@dataclass(frozen=True, slots=True)
class Situation:
    """What an agent meets at a step: `marks` are those of the state, `before` the last actions, newest last.

    `page` is None where the domain is one of tools.
    """

    task: str
    marks: frozenset[str]
    before: tuple[Target, ...]
    page: PageOutline | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a successful trajectory: the situation, what was done next, and the skills that do it.

    `t` is the step's number and `page` what its state is called.
    """

    trajectory_id: str
    task_id: str
    domain: str
    t: int
    page: str
    situation: Situation
    after: tuple[Target, ...]
    bodies: tuple[Body, ...]


def moments(trajectory: Trajectory, granularity: Granularity = "window") -> list[Moment]:
    """Return the moments of a trajectory: its steps that speak to nobody, with skills of their windows.

    Args:
        trajectory: One that succeeded.
        granularity: Which windows become skills (`bind.windows`).
    """
    steps, _ = cleaned(trajectory)
    met = situations(trajectory, steps)
    return [
        Moment(
            trajectory.trajectory_id, trajectory.task_id, trajectory.domain, step.t,
            page_of(step.observation, step.url, step.title), met[step.place], _after(steps, start),
            tuple(_bodies(trajectory.task, steps, start, granularity)),
        )
        for start, step in enumerate(steps)
        if not step.action.speaks
    ]  # fmt: skip


def _bodies(task: str, steps: Sequence[CleanStep], start: int, granularity: Granularity) -> Iterator[Body]:
    for length in windows(steps, start, granularity):
        yield from bodies(task, steps, start, length)


def _after(steps: Sequence[CleanStep], start: int) -> tuple[Target, ...]:
    done = []
    for step in steps[start : start + _NEXT]:
        if step.action.speaks:
            break
        done.append(step.target)
    return tuple(done)


def situations(trajectory: Trajectory, kept: Sequence[CleanStep]) -> list[Situation]:
    """Return the situation at each step, of those too that fell out; nothing done there or later is in it."""
    targets = {step.place: step.target for step in kept}
    before: list[Target] = []
    found = []
    for place, step in enumerate(trajectory.steps):
        found.append(situation_of(trajectory.task, step.observation, step.url, step.title, before))
        if place in targets:
            before.append(targets[place])
    return found


def situation_of(task: str, observation: str, url: str, title: str, before: Sequence[Target]) -> Situation:
    """Return the situation of an agent that sees a state after some actions, the newest of them last."""
    outline = outline_of(observation)
    page = outline if outline.elements else None
    return Situation(task, _marks(observation, page, url, title), tuple(before[-_BEFORE:]), page)


def _marks(observation: str, page: PageOutline | None, url: str, title: str) -> frozenset[str]:
    """Return what tells a state from others.

    Of a page that is its elements, title and address, of a tool's result which tool and the words of its
    fields, of what a person said the words.
    """
    if page is not None:
        elements = {f"{role} {label}" for role, label in page.counts}
        return frozenset(elements | {f"title {title}", f"url {_NUMBER.sub('#', url)}"})
    tool = answering_tool(observation)
    if tool is None:
        return frozenset({"said", *(f"said {word}" for word in LETTERS.findall(observation.lower()))})
    fields = _FIELD.findall(observation)
    return frozenset({f"from {tool}", *(f"{name} is {value}" for name, value in fields)})
