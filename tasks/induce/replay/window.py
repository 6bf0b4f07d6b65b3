"""Windows in which skills are replayed, and what is broken where a skill does not do a window again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.induce.trajectories.cleaning import CleanStep

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


@dataclass(frozen=True, slots=True)
class Broken:
    """A skill does not do what it must: the action, counted from 0, and the reason."""

    place: int
    reason: str
