"""Drafts of skills as a library hands them to an inducer."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.induce.library.build import build
from tasks.induce.library.drafts import DroppedSkill, Rare, SkillDraft
from tasks.induce.replay.verify import RecordedReplay, Replay
from tasks.induce.trajectories.record import Trajectory


class Noting:
    """An inducer that notes the drafts that it is given, and leaves them as they are."""

    name = "noting"

    def __init__(self) -> None:
        self.drafts: list[SkillDraft] = []

    def induce(
        self,
        drafts: Sequence[SkillDraft],
        rare: Rare,  # noqa: ARG002
        replay: Replay,  # noqa: ARG002
    ) -> tuple[list[SkillDraft], list[DroppedSkill]]:
        self.drafts = list(drafts)
        return self.drafts, []


def drafts_of(domain: str, runs: Sequence[Trajectory]) -> list[SkillDraft]:
    """Return what recurrence finds in runs, before it is verified."""
    noting = Noting()
    build(domain, runs, RecordedReplay(), inducer=noting)
    return noting.drafts
