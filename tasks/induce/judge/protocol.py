"""The protocol of judges of trajectories, SGDR's evaluator E, and the one that takes the files' word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasks.induce.trajectories.record import Trajectory


class Judge(Protocol):
    """Tells which trajectories did their tasks (SGDR, section 3.2)."""

    @property
    def name(self) -> str:
        """Who judges, with all that decides a verdict."""
        ...

    def verdicts(self, trajectories: Sequence[Trajectory]) -> list[bool | None]:
        """Return of each whether it did its task; None: nobody can tell yet, and it waits."""
        ...


class DeclaredJudge:
    """Takes the verdict with which a trajectory was recorded."""

    name = "declared"

    def verdicts(self, trajectories: Sequence[Trajectory]) -> list[bool | None]:
        """Return the verdicts of the files."""
        return [one.success for one in trajectories]
