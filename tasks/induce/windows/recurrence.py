"""Recurrence: the default inducer, which needs no model: equal windows but for their slots are one skill.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391); what differs between tasks becomes an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.induce.bindings.bind import bodies, windows
from tasks.induce.skills.actions import Body, Granularity
from tasks.induce.skills.wording import page_of, summed_up
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.record import Trajectory

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
