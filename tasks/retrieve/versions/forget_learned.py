"""Forgets a trajectory or a learned skill: it is removed everywhere, a tombstone stays."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import replace
from datetime import datetime

from storage.answers import forget_answers
from storage.errors import UnknownDocument
from storage.root import Root
from storage.served import read_served
from storage.tombstones import Forgotten, Tombstone, add_tombstones, mark_purged
from tasks.induce.library.build import DomainLibrary
from tasks.induce.library.held import HeldLibraries
from tasks.induce.library.kept import KeptTrajectories
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.texts.summaries import STATES
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import card_of
from tasks.retrieve.index.learned import build_learned, note_learned
from tasks.retrieve.suggest.stored import BY_RULE
from tasks.retrieve.versions.forget import ForgetReport
from tasks.retrieve.versions.publish import publish_learned
from tasks.retrieve.versions.purge import purge

_RUN = "trajectory"
SCOPES = {_RUN: "trajectory", "learned": "learned skill"}  # what stands before the colon, and in words


def is_learned(target: str) -> bool:
    """Tell whether a target is a trajectory or a learned skill: `trajectory:ID` or `learned:SKILL_ID`."""
    return target.partition(":")[0] in SCOPES and ":" in target


def find_learned(root: Root, target: str) -> tuple[str, str]:
    """Return the scope and the id that a target names.

    Raises:
        UnknownDocument: Nothing has or had this id; the nearest are named.
    """
    scope, _, name = target.partition(":")
    known = KeptTrajectories(root).digests() if scope == _RUN else _skills(root)
    if name not in known and name not in Forgotten.load(root).named(scope):
        near = difflib.get_close_matches(name, known, 3)
        said = f": near {', '.join(near)}" if near else ""
        msg = f"no {SCOPES[scope]} has the id {name!r}{said}"
        raise UnknownDocument(msg)
    return scope, name


def _skills(root: Root) -> set[str]:
    held = HeldLibraries(root)
    return {skill_id for domain in held.domains() for skill_id in held.by_id(domain)}


def forget_learned(root: Root, target: str, *, run_id: str, now: datetime) -> ForgetReport:
    """Remove a trajectory, or a skill that was learned, from all files and table versions.

    Skills that other trajectories did too stay, without it as a source; their libraries are built anew by the
    next `induce`. Older versions of the tables are removed, so there is no rollback to them. A call that was
    killed is finished by calling again.

    Raises:
        UnknownDocument: Nothing has or had this id.
        StorageError: A file or table cannot be read; all others have been cleaned.
    """
    scope, name = find_learned(root, target)
    forgotten = add_tombstones(root, [Tombstone(name, scope, target)], now)
    dropped = KeptTrajectories(root).drop({name}) if scope == _RUN else 0
    answers = forget_answers(root, lambda of: of in (target, STATES)) if scope == _RUN else 0
    held = HeldLibraries(root)
    changed = [domain for domain in held.domains() if _take_out(held, domain, scope, name)]
    if changed or dropped:
        _publish(root, f"{run_id}-0", now)
    removed = purge(root, forgotten, run_id=run_id)
    mark_purged(root, now)
    served = read_served(root)
    removed += +Counter({"trajectories": dropped, "state/answers": answers})
    counts = dict(sorted(removed.items()))
    return ForgetReport(name, SCOPES[scope], (name,), (), counts, served.version if served else None)


def _take_out(held: HeldLibraries, domain: str, scope: str, name: str) -> bool:
    """Take a source or a skill out of a domain's library; tell whether it was in it."""
    skills, dropped = held.skills(domain), held.dropped(domain)
    if scope == _RUN:
        kept = [own for own in (_without(skill, name) for skill in skills) if own.sources]
        left = [one for one in dropped if one.trajectory_id != name]
    else:
        kept = [skill for skill in skills if skill.skill_id != name]
        left = dropped
    if (kept, left) == (skills, dropped):
        return False
    held.put(domain, DomainLibrary(kept, left), "")  # so that the next `induce` builds it anew
    return True


def _without(skill: InducedSkill, trajectory_id: str) -> InducedSkill:
    sources = tuple(source for source in skill.sources if source[0] != trajectory_id)
    return replace(skill, sources=sources, verified_sources=min(skill.verified_sources, len(sources)))


def _publish(root: Root, run_id: str, now: datetime) -> None:
    served = read_served(root)
    if served is None or served.induced is None:
        return
    path = str(served.model["path"])
    folder = str(root.fetch(path))
    found = build_learned(
        root, encoder=load_kept_encoder(root.uri, folder), summarise=BY_RULE.summarise, said=BY_RULE.name
    )
    publish_learned(root, found.built, card=card_of(folder), path=path, run_id=run_id, now=now)
    note_learned(root, found)
