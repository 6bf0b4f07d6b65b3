"""Drafts of skills, merged where they do the same; inducers that go over them; near skills of a domain."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tasks.induce.replay.verify import Replay
from tasks.induce.replay.window import SourceWindow
from tasks.induce.skills.actions import Arg, Body, told
from tasks.induce.skills.code import function_name, parameters, with_id
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


MOST = 20  # near skills that are named
_NUMBERS = re.compile(r"[\W\d_]+")
Shape = tuple[tuple[str, str | None, str | None], ...]
_Groups = Mapping[Shape, Sequence[str]]


def linked(skills: Sequence[InducedSkill]) -> list[InducedSkill]:
    """Return skills of a domain with the ids of those that are near each, sorted.

    Two are near if they do the same actions in the same order, on elements of the same roles whose labels are
    the same but for numbers, wherever their arguments come from, or if one does so without its first or its
    last action. At most 20 are named, those that do the same actions first, then in the order of their ids.

    Args:
        skills: All of the domain; their order is kept and decides nothing.
    """
    same, longer = defaultdict[Shape, list[str]](list), defaultdict[Shape, list[str]](list)
    for skill in sorted(skills, key=lambda one: one.skill_id):
        shape = shape_of(skill.body)
        same[shape].append(skill.skill_id)
        for part in _without_an_end(shape):
            longer[part].append(skill.skill_id)
    return [replace(skill, near=_near(skill, same, longer)) for skill in skills]


def shape_of(body: Body) -> Shape:
    """Return what near skills share: names of actions, roles, and labels without numbers."""
    return tuple((action.name, action.role, _lettered(action.target)) for action in body)


def _lettered(label: str | None) -> str | None:
    # A label without letters is all that tells its element from others.
    return label and (" ".join(_NUMBERS.sub(" ", label).split()) or label)


def _without_an_end(shape: Shape) -> Iterator[Shape]:
    yield from (part for part in dict.fromkeys((shape[1:], shape[:-1])) if part)


def _near(skill: InducedSkill, same: _Groups, longer: _Groups) -> tuple[str, ...]:
    shape = shape_of(skill.body)
    # Of a group no more are read than can be named: it may hold most skills of a domain.
    alike = [one for one in same[shape][: MOST + 1] if one != skill.skill_id]
    parts = (same.get(part, ())[:MOST] for part in _without_an_end(shape))
    others = {one for group in (longer.get(shape, ())[:MOST], *parts) for one in group}
    return tuple(sorted([*alike, *sorted(others)][:MOST]))
