"""Drafts of skills, merged where they do the same, and the protocol of inducers that go over them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tasks.induce.replay.verify import Replay
from tasks.induce.replay.window import SourceWindow
from tasks.induce.skills.actions import Arg, Body, told
from tasks.induce.skills.naming import function_name, parameters, with_id
from tasks.induce.skills.skill import InducedSkill


@dataclass(frozen=True, slots=True)
class DroppedSkill:
    """A skill that is not kept, and why.

    Reasons are `code`, `leak`, `gives-orders`, `forgotten`, `replay` with the source where it broke, and an
    LLM's `not-reusable`.
    """

    skill_id: str
    domain: str
    reason: str
    detail: str
    trajectory_id: str | None = None
    t: int | None = None


@dataclass(frozen=True, slots=True)
class SkillDraft:
    """A skill with the windows in which it was done; it is replayed there unless it is `verified` already."""

    skill: InducedSkill
    windows: Sequence[SourceWindow]


class Rare(Protocol):
    """Knows the values that belong to single tasks."""

    def stand_in(self, text: str) -> bool:
        """Tell whether one of them stands in a text."""
        ...


class Inducer(Protocol):
    """Makes skills of drafts."""

    @property
    def name(self) -> str:
        """Who induces, with all that decides the outcome."""
        ...

    def induce(
        self, drafts: Sequence[SkillDraft], rare: Rare, replay: Replay
    ) -> tuple[list[SkillDraft], list[DroppedSkill]]:
        """Return the drafts in the order of their ids, those verified already as such, and those left out."""
        ...


def merged(drafts: Sequence[SkillDraft], inducer: str) -> list[SkillDraft]:
    """Return drafts by id, those that differ in names of parameters alone as one.

    The first by id leads, one that `inducer` made before others; drafts of one name get names of their own.
    """
    alike: defaultdict[Body, list[SkillDraft]] = defaultdict(list)
    for draft in sorted(drafts, key=lambda each: (each.skill.inducer != inducer, each.skill.skill_id)):
        alike[_unnamed(draft.skill.body)].append(draft)
    found = [_joined(group) for group in alike.values()]
    names = [_name(one, inducer) for one in found]
    taken = Counter(names)
    own = (
        with_id(name, one.skill.skill_id) if taken[name] > 1 else name
        for one, name in zip(found, names, strict=True)
    )
    named = [replace(one, skill=replace(one.skill, name=name)) for one, name in zip(found, own, strict=True)]
    return sorted(named, key=lambda each: each.skill.skill_id)


def _name(draft: SkillDraft, inducer: str) -> str:
    """Return a draft's name as it is before others have it too."""
    return draft.skill.name if draft.skill.inducer == inducer else function_name(draft.skill.body)


def _unnamed(body: Body) -> Body:
    """Return actions with numbers for the names of parameters."""
    numbers = {name: Arg(str(number)) for number, name in enumerate(parameters(body))}
    return tuple(
        replace(
            action,
            args=tuple((name, numbers[s.name] if isinstance(s, Arg) else s) for name, s in action.args),
        )
        for action in body
    )


def unnamed_digest(body: Body) -> str:
    """Return a digest of what a skill does, whatever its parameters are called."""
    return hashlib.sha256(json.dumps(told(_unnamed(body))).encode()).hexdigest()


def _joined(group: Sequence[SkillDraft]) -> SkillDraft:
    """Return the first draft with the windows, tasks and sources of all, not verified in those of others.

    A window counts once.
    """
    if len(group) == 1:
        return group[0]
    windows = {(window.source, window.length): window for each in group for window in each.windows}
    skill = replace(
        group[0].skill,
        tasks=tuple(sorted({task for each in group for task in each.skill.tasks})),
        sources=tuple(sorted({source for source, _ in windows})),
        verified=(),
        verified_sources=0,
    )
    return SkillDraft(skill, [windows[key] for key in sorted(windows)])
