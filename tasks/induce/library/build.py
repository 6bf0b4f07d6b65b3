"""Builds the library of a domain: what its successful trajectories did, as skills verified by replay."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tasks.induce.library.drafts import DroppedSkill, Inducer, SkillDraft, linked, unnamed_digest
from tasks.induce.replay.verify import Replay, verify
from tasks.induce.replay.window import SourceWindow, source_windows
from tasks.induce.skills.actions import Body, Granularity
from tasks.induce.skills.code import actions_of, function_name, skill_id_of, with_id
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.skills.wording import COMMON, described, page_named
from tasks.induce.texts.safeguards import gives_orders
from tasks.induce.trajectories.cleaning import ELEMENT, cleaned
from tasks.induce.trajectories.outline import folded
from tasks.induce.trajectories.record import Trajectory
from tasks.induce.windows.bind import leaves, word_run

STAGE_VERSION = 3  # raised when the same trajectories give another library
_LEAST_LENGTH = 6  # characters of a value that may be rare


@dataclass(slots=True)
class DomainLibrary:
    """What the trajectories of a domain gave: skills and dropped ones, by id; `windows` were looked at."""

    skills: list[InducedSkill] = field(default_factory=list)
    dropped: list[DroppedSkill] = field(default_factory=list)
    windows: int = 0

    def forget(self, skill_ids: Collection[str], digests: Collection[str]) -> None:
        """Move skills to what is dropped, so that nothing offers them again.

        Args:
            skill_ids: Their ids.
            digests: `unnamed_digest` of what they do.
        """
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
    domain: str,
    trajectories: Sequence[Trajectory],
    replay: Replay,
    support: int = 1,
    granularity: Granularity = "window",
    inducer: Inducer | None = None,
) -> DomainLibrary:
    """Return the library of a domain; trajectories in another order give the same.

    Args:
        domain: Its name.
        trajectories: All of the domain; those that succeeded give skills.
        replay: How skills are verified.
        support: The least number of tasks that did a skill.
        granularity: What skills are cut out of.
        inducer: Goes over what recurrence found; None: that is what is verified.
    """
    given = sorted(trajectories, key=lambda one: one.trajectory_id)
    uses = _uses(given, granularity)
    rare, found = RareValues(given), DomainLibrary(windows=sum(len(one.windows) for one in uses.values()))
    taken = Counter(function_name(body) for body in uses)
    pages = _by_page(uses.values())
    drafts = [
        SkillDraft(_skill(domain, body, own, pages, is_taken=taken[function_name(body)] > 1), own.windows)
        for body, own in sorted(uses.items(), key=lambda each: skill_id_of(domain, each[0]))
        if len(own.tasks) >= support
    ]
    if inducer is not None:
        drafts, found.dropped = inducer.induce(drafts, rare, replay)
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


def _by_page(uses: Iterable[_Uses]) -> Mapping[str, set[str]]:
    tasks = defaultdict[str, set[str]](set)
    for own in uses:
        for page, known in own.pages.items():
            tasks[page] |= known
    return tasks


def _skill(
    domain: str, body: Body, own: _Uses, pages: Mapping[str, set[str]], *, is_taken: bool
) -> InducedSkill:
    skill_id, name = skill_id_of(domain, body), function_name(body)
    page = page_named(own.pages, pages)
    # A name that is taken loses no skill: both get their ids' first digits.
    called = with_id(name, skill_id) if is_taken else name
    return InducedSkill(
        skill_id,
        domain,
        called,
        described(body, page),
        body,
        tuple(sorted(own.tasks)),
        tuple(sorted(window.source for window in own.windows)),
    )


def _keep(found: DomainLibrary, draft: SkillDraft, rare: RareValues, replay: Replay) -> None:
    skill = draft.skill
    length = len(skill.body)
    if actions_of(skill.code, least=length, most=length)[1] != skill.body:
        detail = "its code does not say what its actions do"
        found.dropped.append(DroppedSkill(skill.skill_id, skill.domain, "code", detail))
        return
    said = f"{skill.name.replace('_', ' ')} {skill.description} {skill.code}"
    if rare.stand_in(said):
        detail = "a value that fewer than three tasks gave stands in it"
        found.dropped.append(DroppedSkill(skill.skill_id, skill.domain, "leak", detail))
        return
    if gives_orders(said):
        detail = "a label in it tells its reader what to do"
        found.dropped.append(DroppedSkill(skill.skill_id, skill.domain, "gives-orders", detail))
        return
    if skill.verified:
        found.skills.append(skill)
        return
    verdict = verify(skill.body, draft.windows, replay)
    if verdict.broken is None:
        found.skills.append(skill.with_verdict(verdict.how, len(verdict.sources)))
        return
    where, broken = verdict.where, verdict.broken
    detail = f"action {broken.place}: {broken.reason}"
    found.dropped.append(
        DroppedSkill(skill.skill_id, skill.domain, "replay", detail, *(where or (None, None)))
    )


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
