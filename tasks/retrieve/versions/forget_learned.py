"""Forgets a trajectory or a learned skill: it is removed everywhere, a tombstone stays."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from storage.answers import forget_answers
from storage.errors import StorageError, UnknownDocument, WrongInput
from storage.root import Root
from storage.served import read_served
from storage.tombstones import Forgotten, Tombstone, add_tombstones, mark_purged
from tasks.induce.library.drafts import unnamed_digest
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.llm_inducer.windows import WINDOWS_ASKED
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.texts.summaries import STATES
from tasks.retrieve.suggest.served import ServedSkills
from tasks.retrieve.versions.forget import ForgetReport
from tasks.retrieve.versions.purge import purge

_RUN = "trajectory"
SCOPES = {_RUN: "trajectory", "learned": "learned skill"}  # what stands before the colon, and in words


def is_learned(target: str) -> bool:
    """Tell whether a target is a trajectory or a learned skill: `trajectory:ID` or `learned:SKILL_ID`."""
    return target.partition(":")[0] in SCOPES and ":" in target


def find_learned(root: Root, target: str) -> tuple[str, str]:
    """Return the scope and the id that a target names: one that is kept, served, or forgotten before.

    Raises:
        UnknownDocument: Nothing has or had this id; the nearest are named.
    """
    scope, _, name = target.partition(":")
    known = _runs(root) if scope == _RUN else set(_skills(root))
    if name not in known and name not in Forgotten.load(root).named(scope):
        near = difflib.get_close_matches(name, known, 3)
        said = f": near {', '.join(near)}" if near else ""
        msg = f"no {SCOPES[scope]} has the id {name!r}{said}"
        raise UnknownDocument(msg)
    return scope, name


def _served(root: Root) -> ServedSkills | None:
    try:
        return ServedSkills(root)
    except WrongInput:
        return None


def _runs(root: Root) -> set[str]:
    served = _served(root)
    shown = served.runs() if served else set[str]()
    return shown | set(KeptTrajectories(root).digests())


def _skills(root: Root) -> dict[str, InducedSkill]:
    held, served = HeldLibraries(root), _served(root)
    shown = [skill for one in served.domains for skill in served.skills(one)] if served else []
    kept = [skill for domain in held.domains() for skill in held.by_id(domain).values()]
    return {skill.skill_id: skill for skill in [*shown, *kept]}


def forget_learned(root: Root, target: str, *, run_id: str, now: datetime) -> ForgetReport:
    """Remove a trajectory, or a skill that was learned, from all files and table versions.

    What is served goes on without it: skills that other trajectories did too stay, without it as a source.
    The libraries of its domain are built anew by the next `induce`. Older versions of the tables are removed,
    so there is no rollback to them. A call that was killed is finished by calling again.

    Raises:
        UnknownDocument: Nothing has or had this id.
        StorageError: A file or table cannot be read; all others have been cleaned.
    """
    scope, name = find_learned(root, target)
    skill = None if scope == _RUN else _skills(root).get(name)
    # Under other names of parameters it would be the same skill.
    digest = unnamed_digest(skill.body) if skill else None
    forgotten = add_tombstones(root, [Tombstone(name, scope, target, body_hash=digest)], now)
    removed, unreadable = _clean(root, scope, name, target)
    removed += purge(root, forgotten, run_id=run_id)
    if unreadable:
        msg = f"nothing could be taken out of {unreadable}: delete that, then forget again"
        raise StorageError(msg)
    mark_purged(root, now)
    served = read_served(root)
    counts = dict(sorted((+removed).items()))
    return ForgetReport(name, SCOPES[scope], (name,), (), counts, served.version if served else None)


def _clean(root: Root, scope: str, name: str, target: str) -> tuple[Counter[str], str]:
    """Clean files of runs, libraries and answers; return what was removed, and what could not be read."""
    removed: Counter[str] = Counter()
    try:
        if scope == _RUN:
            removed["trajectories"] = KeptTrajectories(root).drop({name})
            HeldVerdicts(root).forget(name)
            of = {target, STATES, WINDOWS_ASKED}
            removed["state/answers"] = forget_answers(root, of.__contains__)
        held = HeldLibraries(root)
        for domain in held.domains():
            if _holds(held.by_id(domain).values(), scope, name):
                held.drop(domain)
                removed["induced"] += 1
    except StorageError as error:
        return removed, str(error)
    return removed, ""


def _holds(skills: Iterable[InducedSkill], scope: str, name: str) -> bool:
    if scope == _RUN:
        return any(name in dict(skill.sources) for skill in skills)
    return any(skill.skill_id == name for skill in skills)
