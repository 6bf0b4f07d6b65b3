"""Recurrence: the default inducer, which needs no model: equal windows but for their slots are one skill.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391); what differs between tasks becomes an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.induce.skills.actions import Arg, Body, Const, Find, Granularity, Result, SkillAction, Source
from tasks.induce.skills.wording import page_of, summed_up
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep, cleaned
from tasks.induce.trajectories.record import Trajectory
from tasks.induce.windows.bind import NARROW, at_path, bodies, is_known, names, same, windows

Target = tuple[str, str | None, str | None]  # an action's name, and the role and label of what it was on


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a successful trajectory that speaks to nobody, and the skills that do what was done next.

    `t` is the step's number, `page` what its state is called and `state` that state summed up; `before` is
    the last action before it, None if there was none.
    """

    trajectory_id: str
    task_id: str
    domain: str
    t: int
    page: str
    state: str
    before: Target | None
    bodies: tuple[Body, ...]


def moments(trajectory: Trajectory, granularity: Granularity = "window") -> list[Moment]:
    """Return the moments of a trajectory: its steps that speak to nobody, with skills of their windows.

    Args:
        trajectory: One that succeeded.
        granularity: Which windows become skills (`bind.windows`).
    """
    steps, _ = cleaned(trajectory)
    before = [None, *(step.target for step in steps)]
    return [
        Moment(
            trajectory.trajectory_id, trajectory.task_id, trajectory.domain, step.t,
            page_of(step.observation, step.url, step.title),
            summed_up(step.observation, step.url, step.title), before[start],
            tuple(_bodies(trajectory.task, steps, start, granularity)),
        )
        for start, step in enumerate(steps)
        if not step.action.speaks
    ]  # fmt: skip


def _bodies(task: str, steps: Sequence[CleanStep], start: int, granularity: Granularity) -> Iterator[Body]:
    for length in windows(steps, start, granularity):
        yield from bodies(task, steps, start, length)


def last_actions(trajectory: Trajectory, kept: Sequence[CleanStep]) -> list[Target | None]:
    """Return for each step, those that fell out too, the last action that was kept before it."""
    targets = {step.place: step.target for step in kept}
    found: list[Target | None] = [None]
    for place in range(len(trajectory.steps)):
        found.append(targets.get(place, found[-1]))
    return found[:-1]


def misfit(body: Body, task: str, steps: Sequence[CleanStep], start: int) -> int | None:
    """Return the first action of a skill that is not what was done from a step on; None if all are.

    An argument that the caller gives fits where the caller can know it when the skill begins; one that can be
    known only inside the skill must come out of its source as it was recorded.
    """
    for place, action in enumerate(body):
        if start + place >= len(steps) or not _fits(action, task, steps, start, start + place):
            return place
    return None


def begins(action: SkillAction, task: str, step: CleanStep) -> bool:
    """Tell whether an action is that of a step, in name and target, arguments aside."""
    if action.name != step.action.name or step.action.speaks:
        return False
    element = step.element
    if element is None:
        is_gone = step.outline is not None and ELEMENT in step.action.args
        return action.role is None and not is_gone
    if action.role is None:
        return element.role not in NARROW and names(task, element.label)
    return (element.role, element.label) == (action.role, action.target)


def _fits(action: SkillAction, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    step = steps[place]
    if not begins(action, task, step) or {name for name, _ in action.args} != set(step.action.args):
        return False
    return all(_comes(source, name, task, steps, start, place) for name, source in action.args)


def _comes(source: Source, name: str, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    """Tell whether a source gives an argument of a step as it was recorded."""
    step, value = steps[place], steps[place].action.args[name]
    match source:
        case Arg() if name == ELEMENT and step.outline is not None:
            page, element = steps[start].outline, step.element
            return page is not None and element is not None and page.holds(element)
        case Arg():
            return is_known(value, task, steps, start, place)
        case Const():
            return bool(source.value == value)
        case Result(number, path):
            if not 0 <= number < place - start:
                return False
            given = at_path(steps[start + number].result, path)
            return given is not None and same(given, value)
        case Find(ordinal):
            return step.element is not None and step.element.ordinal == ordinal
