"""Builds the library of a domain: drafts of what its successful runs did, as skills verified by replay."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tasks.induce.replay.verify import Replay, verify
from tasks.induce.replay.window import SourceWindow, source_windows
from tasks.induce.skills.actions import Arg, Body, Granularity, told
from tasks.induce.skills.skill import (
    InducedSkill,
    actions_of,
    function_name,
    parameters,
    skill_id_of,
    with_id,
)
from tasks.induce.skills.texts import gives_orders
from tasks.induce.skills.windows import leaves, word_run
from tasks.induce.skills.wording import COMMON, described, page_named
from tasks.induce.trajectories.cleaning import ELEMENT, cleaned
from tasks.induce.trajectories.outline import folded
from tasks.induce.trajectories.record import Trajectory


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


class RareValues:
    """The values of a domain that fewer than three tasks gave, and no three saw as an element's name.

    Values are arguments of actions, texts typed among them, of six characters at least.
    """

    def __init__(self, trajectories: Iterable[Trajectory]) -> None:
        given, seen = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for one in trajectories:
            for step in cleaned(one)[0]:
                if not step.action.speaks:
                    named = step.action.args.items()
                    own = (leaf for name, value in named if name != ELEMENT for leaf in leaves(value))
                    for value in map(str, own):
                        if len(value) >= _LEAST_LENGTH:
                            given[value].add(one.task_id)
                for _, label in step.outline.counts if step.outline else ():
                    seen[label].add(one.task_id)
        self._runs = [
            word_run(value.replace("_", " "))
            for value, tasks in sorted(given.items())
            if len(tasks) < COMMON and len(seen[folded(value)]) < COMMON
        ]

    def stand_in(self, text: str) -> bool:
        """Tell whether one of them stands in a text as whole words."""
        held = word_run(text.replace("_", " "))
        return any(run in held for run in self._runs if run.strip())


# Goes over drafts in the order of their ids: gives those to keep, some verified already, and those left out.
Induce = Callable[[Sequence[SkillDraft], RareValues, Replay], tuple[list[SkillDraft], list[DroppedSkill]]]


def merged(drafts: Sequence[SkillDraft], inducer: str) -> list[SkillDraft]:
    """Return drafts by id, those that differ in names of parameters alone as one.

    The first by id leads, one that `inducer` made before others; drafts of one name get names of their own.
    """
    alike: defaultdict[Body, list[SkillDraft]] = defaultdict(list)
    for draft in sorted(drafts, key=lambda each: (each.skill.inducer != inducer, each.skill.skill_id)):
        alike[_unnamed(draft.skill.body)].append(draft)
    found = [_joined(group) for group in alike.values()]
    # As they are before others have them too.
    names = [
        one.skill.name if one.skill.inducer == inducer else function_name(one.skill.body) for one in found
    ]
    taken = Counter(names)
    own = (
        with_id(name, one.skill.skill_id) if taken[name] > 1 else name
        for one, name in zip(found, names, strict=True)
    )
    named = [replace(one, skill=replace(one.skill, name=name)) for one, name in zip(found, own, strict=True)]
    return sorted(named, key=lambda each: each.skill.skill_id)


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


STAGE_VERSION = 3  # raised when the same trajectories give another library
_LEAST_LENGTH = 6  # characters of a value that may be rare


@dataclass(slots=True)
class DomainLibrary:
    """What the trajectories of a domain gave: skills and dropped ones, by id; `windows` were looked at."""

    skills: list[InducedSkill] = field(default_factory=list)
    dropped: list[DroppedSkill] = field(default_factory=list)
    windows: int = 0

    def forget(self, skill_ids: Collection[str], digests: Collection[str]) -> None:
        """Move skills to what is dropped, by their ids or by `unnamed_digest` of what they do."""
        gone = [s for s in self.skills if s.skill_id in skill_ids or unnamed_digest(s.body) in digests]
        self.skills = [one for one in self.skills if one not in gone]
        why = ("forgotten", "`forget` named it")
        dropped = [*self.dropped, *(DroppedSkill(one.skill_id, one.domain, *why) for one in gone)]
        self.dropped = sorted(dropped, key=lambda one: one.skill_id)


@dataclass(slots=True)
class _Uses:
    """Where a skill was done: its windows, their tasks, and the tasks of each page."""

    windows: list[SourceWindow] = field(default_factory=list)
    tasks: set[str] = field(default_factory=set)
    pages: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def build(
    domain: str, trajectories: Sequence[Trajectory], replay: Replay, support: int = 1,
    granularity: Granularity = "window", induce: Induce | None = None,
) -> DomainLibrary:  # fmt: skip
    """Return the library of a domain; its trajectories in another order give the same.

    Those that succeeded give skills, each of at least `support` tasks, cut out as `granularity` says.
    `induce` goes over what recurrence found; None: that is what is verified by `replay`.
    """
    given = sorted(trajectories, key=lambda one: one.trajectory_id)
    uses = _uses(given, granularity)
    rare, found = RareValues(given), DomainLibrary(windows=sum(len(one.windows) for one in uses.values()))
    taken = Counter(function_name(body) for body in uses)
    pages = defaultdict[str, set[str]](set)
    for own in uses.values():
        for page, tasks in own.pages.items():
            pages[page] |= tasks
    drafts = [
        SkillDraft(_skill(domain, body, own, pages, is_taken=taken[function_name(body)] > 1), own.windows)
        for body, own in sorted(uses.items(), key=lambda each: skill_id_of(domain, each[0]))
        if len(own.tasks) >= support
    ]
    if induce is not None:
        drafts, found.dropped = induce(drafts, rare, replay)
    for draft in drafts:
        _keep(found, replace(draft, skill=replace(draft.skill, granularity=granularity)), rare, replay)
    found.skills = linked(found.skills)
    found.dropped.sort(key=lambda one: one.skill_id)
    return found


def _uses(given: Sequence[Trajectory], granularity: Granularity) -> dict[Body, _Uses]:
    uses: defaultdict[Body, _Uses] = defaultdict(_Uses)
    for one in given:
        for moment, body, window in source_windows(one, granularity) if one.success else ():
            own = uses[body]
            own.windows.append(window)
            own.tasks.add(one.task_id)
            own.pages[moment.page].add(one.task_id)
    return uses


def _skill(
    domain: str, body: Body, own: _Uses, pages: Mapping[str, set[str]], *, is_taken: bool
) -> InducedSkill:
    skill_id, name = skill_id_of(domain, body), function_name(body)
    page = page_named(own.pages, pages)
    # A name that is taken loses no skill: both get their ids' first digits.
    called = with_id(name, skill_id) if is_taken else name
    return InducedSkill(
        skill_id, domain, called, described(body, page), body, tuple(sorted(own.tasks)),
        tuple(sorted(window.source for window in own.windows)),
    )  # fmt: skip


def _keep(found: DomainLibrary, draft: SkillDraft, rare: RareValues, replay: Replay) -> None:
    skill = draft.skill
    said = f"{skill.name.replace('_', ' ')} {skill.description} {skill.code}"

    def drop(reason: str, detail: str, trajectory_id: str | None = None, t: int | None = None) -> None:
        found.dropped.append(DroppedSkill(skill.skill_id, skill.domain, reason, detail, trajectory_id, t))

    if actions_of(skill.code, least=len(skill.body), most=len(skill.body))[1] != skill.body:
        drop("code", "its code does not say what its actions do")
    elif rare.stand_in(said):
        drop("leak", "a value that fewer than three tasks gave stands in it")
    elif gives_orders(said):
        drop("gives-orders", "a label in it tells its reader what to do")
    elif skill.verified:
        found.skills.append(skill)
    elif (verdict := verify(skill.body, draft.windows, replay)).broken is None:
        found.skills.append(replace(skill, verified=verdict.how, verified_sources=len(verdict.sources)))
    else:
        detail = f"action {verdict.broken.place}: {verdict.broken.reason}"
        drop("replay", detail, *(verdict.where or (None, None)))
