"""The sources of learned skills, trajectories, libraries, answers: what `forget` removes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from storage.answers import forget_answers
from storage.errors import StorageError, UnknownDocument, WrongInput
from storage.root import Root
from storage.tombstones import Forgotten, Tombstone
from tasks.crawl.source.lookup import nearest
from tasks.induce.library.build import unnamed_digest
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.library.llm_inducer import WINDOWS_ASKED
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.skills.texts import STATES
from tasks.retrieve.suggest.stored import ServedSkills

_RUN = "trajectory"
SCOPES = {_RUN: "trajectory", "learned": "learned skill"}  # what stands before the colon, and in words


def is_learned(target: str) -> bool:
    """Tell whether a target is a trajectory or a learned skill: `trajectory:ID` or `learned:SKILL_ID`."""
    return target.partition(":")[0] in SCOPES and ":" in target


def learned_tombstone(root: Root, target: str) -> Tombstone:
    """Return the tombstone of what a target names: one that is kept, served, or forgotten before.

    Raises `UnknownDocument` if nothing has or had this id; the nearest are named.
    """
    scope, _, name = target.partition(":")
    skills = {} if scope == _RUN else _skills(root)
    known = _runs(root) if scope == _RUN else set(skills)
    if name not in known and name not in Forgotten.load(root).named(scope):
        near = nearest(name, known)
        said = f": near {', '.join(near)}" if near else ""
        raise UnknownDocument(f"no {SCOPES[scope]} has the id {name!r}{said}")
    # Under other names of parameters it would be the same skill.
    digest = unnamed_digest(skills[name].body) if name in skills else None
    return Tombstone(name, scope, target, body_hash=digest)


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


def clean_learned(root: Root, stone: Tombstone) -> tuple[Counter[str], str]:
    """Clean files of runs, libraries and answers; return what was removed, and what could not be read."""
    scope, name, removed = stone.scope, stone.doc_id, Counter[str]()
    try:
        if scope == _RUN:
            removed["trajectories"] = KeptTrajectories(root).drop({name})
            HeldVerdicts(root).forget(name)
            of = {stone.target, STATES, WINDOWS_ASKED}
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
