"""Drafts of skills as a library hands them to an inducer."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.induce.library.build import DroppedSkill, SkillDraft, build
from tasks.induce.replay.verify import RecordedReplay
from tasks.induce.trajectories.record import Trajectory


def drafts_of(domain: str, runs: Sequence[Trajectory]) -> list[SkillDraft]:
    """Return what recurrence finds in runs, before it is verified."""
    noted: list[SkillDraft] = []

    def noting(drafts: Sequence[SkillDraft], *_: object) -> tuple[list[SkillDraft], list[DroppedSkill]]:
        noted.extend(drafts)
        return noted, []

    build(domain, runs, RecordedReplay(), induce=noting)
    return noted
