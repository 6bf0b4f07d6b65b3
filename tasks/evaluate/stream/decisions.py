"""Decisions: the steps at which skills were offered, what came of it, and the measures over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.induce.bindings.fits import misfit
from tasks.induce.trajectories.cleaning import CleanStep
from tasks.induce.trajectories.record import Trajectory
from tasks.retrieve.suggest.offered import Offered

MEASURES = ("usable@5", "action@5", "decisions", "reachable")


@dataclass(frozen=True, slots=True)
class Decision:
    """A step of a successful trajectory that speaks to nobody, at which skills were offered.

    `usable` is the number of actions of the longest skill offered that does exactly what was done next, 0 if
    none of two actions or more does; `begun` whether one of them begins with what was done, arguments aside;
    `reachable` whether any skill learned by then would have been usable; `walked` whether an agent that uses
    the longest one wherever it can decides here.
    """

    trajectory_id: str
    task_id: str
    domain: str
    t: int
    usable: int
    begun: bool
    reachable: bool
    walked: bool

    def value(self, measure: str) -> float:
        """Return what it adds to one of `MEASURES`, 0 or 1."""
        held = {
            "usable@5": self.usable > 0, "action@5": self.begun, "decisions": self.walked,
            "reachable": self.reachable,
        }  # fmt: skip
        return float(held[measure])


def reachable(offered: Offered, trajectory: Trajectory, kept: Sequence[CleanStep], place: int) -> bool:
    """Tell whether any skill that does not come from the trajectory's own task alone is usable."""
    support = offered.support(trajectory.task_id)
    return any(
        support[number] > 0 and len(body) > 1 and misfit(body, trajectory.task, kept, place) is None
        for number, body in enumerate(offered.skills)
    )


def mean(decisions: Sequence[Decision], measure: str) -> float:
    """Return the mean of a measure; 0 where there are no decisions."""
    values = [one.value(measure) for one in decisions]
    return sum(values) / len(values) if values else 0.0
