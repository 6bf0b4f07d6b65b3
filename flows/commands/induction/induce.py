"""Induces skills of trajectories for the command: keeps what is new, and builds the libraries anew."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.commands.console import progress
from flows.run_record import new_run_id
from storage.locks import writer_lock
from storage.root import Root
from tasks.induce.library.build import STAGE_VERSION, DomainLibrary, build
from tasks.induce.library.held import HeldLibraries
from tasks.induce.library.kept import KeptTrajectories
from tasks.induce.replay.verify import opened
from tasks.induce.skills.actions import granularity_of
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.trajectories.read import DOMAIN, Format, Reading, latest, read_trajectories
from tasks.retrieve.suggest.offered import Encode


@dataclass(frozen=True, slots=True)
class InduceWishes:
    """What to induce, and how."""

    paths: Sequence[Path]
    form: Format = "trajectories"  # what a row of the files is
    domain: str = DOMAIN  # of chats that name none
    verify: str = "recorded"  # or `command:CMD`
    folder: Path = Path()  # in which the command runs
    support: int = 1  # the least number of tasks that did a skill
    granularity: str = "window"  # what skills are cut out of


def induce(root: Root, encode: Encode, wishes: InduceWishes) -> dict[str, Any]:
    """Keep the trajectories of files that are new, and build the libraries of their domains.

    Args:
        root: Where all is kept.
        encode: Encodes texts and keeps their vectors: tasks and descriptions, which `suggest` compares.
        wishes: What to induce.

    Returns:
        `run_id`, `state`, `trajectories` (read, new, judged, unchanged, waiting, redacted, failed by
        reason), `windows`, `skills` (new, changed, unchanged, retired), `dropped` by reason, `verified` by
        how, `domains`, `seconds`.

    Raises:
        WrongInput: A path, the granularity or the way to verify cannot be used; nothing was kept.
        EnvironmentUnusable, EnvironmentStopped: The command that skills are verified with cannot be used.
    """
    began, granularity = time.monotonic(), granularity_of(wishes.granularity)
    with writer_lock(root), opened(wishes.verify, wishes.folder) as replay:
        kept, reading = KeptTrajectories(root), Reading()
        reading.digests.update(kept.digests())
        new = latest(read_trajectories(wishes.paths, wishes.form, reading, wishes.domain))
        kept.add(new)
        held = HeldLibraries(root)
        states = {domain: _made_of(state, wishes) for domain, state in kept.states().items()}
        made = held.made_of()
        domains = [domain for domain, state in states.items() if made.get(domain) != state]
        skills: Counter[str] = Counter()
        libraries: dict[str, DomainLibrary] = {}
        with progress("domains learned") as report:
            for number, domain in enumerate(domains, 1):
                before = held.by_id(domain)
                libraries[domain] = build(domain, kept.of(domain), replay, wishes.support, granularity)
                held.put(domain, libraries[domain], states[domain])
                changes = _changes(before, libraries[domain])
                skills += changes
                report(number, len(domains))
        texts = [own.task for _, own in new if own.success]
        learned = [skill for one in libraries.values() for skill in one.skills]
        texts += [skill.description for skill in learned]
        if texts:
            encode(list(dict.fromkeys(texts)))
        return {
            "run_id": new_run_id(),
            "state": "partial" if reading.unread else "complete",
            "trajectories": {
                "read": reading.read + reading.judged + reading.repeated,
                "new": reading.read, "judged": reading.judged, "unchanged": reading.repeated,
                "waiting": sum(own.success is None for _, own in new), "redacted": reading.redacted,
                "failed": dict(reading.reasons),
            },
            "windows": sum(one.windows for one in libraries.values()),
            "skills": {name: skills[name] for name in ("new", "changed", "unchanged", "retired")},
            "dropped": dict(Counter(d.reason for one in libraries.values() for d in one.dropped)),
            "verified": dict(Counter(how for skill in learned for how in skill.verified)),
            "domains": [{"domain": d, "skills": len(held.by_id(d))} for d in held.domains()],
            "seconds": round(time.monotonic() - began, 2),
        }  # fmt: skip


def _made_of(state: str, wishes: InduceWishes) -> str:
    """Return a digest of all that decides a library."""
    said = f"{STAGE_VERSION} {state} {wishes.verify} {wishes.support} {wishes.granularity}"
    return hashlib.sha256(said.encode()).hexdigest()


def _changes(before: Mapping[str, InducedSkill], library: DomainLibrary) -> Counter[str]:
    """Return how many skills are new, retired, changed in anything but their id, and unchanged."""
    now = {skill.skill_id: skill for skill in library.skills}
    stayed = [skill == before[skill_id] for skill_id, skill in now.items() if skill_id in before]
    return Counter(
        new=len(now) - len(stayed), retired=len(before) - len(stayed),
        changed=stayed.count(False), unchanged=stayed.count(True),
    )  # fmt: skip
