"""Windows in which skills are replayed, and what is broken where a skill does not do a window again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.induce.skills.actions import Body, Granularity
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.record import Trajectory
from tasks.induce.windows.recurrence import Moment, moments

# What a caller gives by the names of a skill's parameters: values, and elements (`outline.Element`).
Call = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The steps of a trajectory for which one call of a skill stands: `length` of them from `start` on.

    `steps` are all steps of the trajectory that cleaning kept; `start` is a place among them.
    """

    trajectory_id: str
    domain: str
    task: str
    steps: Sequence[CleanStep]
    start: int
    length: int

    @property
    def inside(self) -> Sequence[CleanStep]:
        """The steps for which the call stands."""
        return self.steps[self.start : self.start + self.length]

    @property
    def source(self) -> tuple[str, int]:
        """The trajectory and the number of the step at which the window begins."""
        return self.trajectory_id, self.steps[self.start].t


def source_windows(
    trajectory: Trajectory, granularity: Granularity = "window"
) -> Iterator[tuple[Moment, Body, SourceWindow]]:
    """Yield the skills of a trajectory, each once a moment, with the window that it was learned from."""
    steps, _ = cleaned(trajectory)
    acting = [place for place, step in enumerate(steps) if not step.action.speaks]
    own = (trajectory.trajectory_id, trajectory.domain, trajectory.task, steps)
    for moment, place in zip(moments(trajectory, granularity), acting, strict=True):
        for body in dict.fromkeys(moment.bodies):
            yield moment, body, SourceWindow(*own, place, len(body))


class NotTaken(Exception):
    """A window cannot be replayed, though it was taken; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A skill does not do what it must: the action, counted from 0, and the reason."""

    place: int
    reason: str
