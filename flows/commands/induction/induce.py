"""Induces skills of trajectories for the command: keeps what is new, and builds the libraries anew."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
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
from tasks.induce.trajectories.read import DOMAIN, Format, Reading, read_trajectories
from tasks.retrieve.suggest.offered import Encode


@dataclass(frozen=True, slots=True)
class InduceWishes:
    """What to induce, and how."""

    paths: Sequence[Path]
    form: Format = "trajectories"  # what a row of the files is
    domain: str = DOMAIN  # of chats that name none
    verify: str = "recorded"  # or `command:CMD`, or `browser:URL`
    folder: Path = Path()  # in which the command runs
    support: int = 1  # the least number of tasks that did a skill
    chromium: str | None = None  # the program that is the browser; None: the first that is found


def induce(root: Root, encode: Encode, wishes: InduceWishes) -> dict[str, Any]:
    """Keep the trajectories of files that are new, and build the libraries of their domains.

    Args:
        root: Where all is kept.
        encode: Encodes texts and keeps their vectors: tasks and descriptions, which `suggest` compares.
        wishes: What to induce.

    Returns:
        `run_id`, `state`, `trajectories` (read, new, unchanged, waiting, failed by reason), `windows`,
        `skills` (new, unchanged, retired), `dropped` by reason, `verified` by how, `domains`, `seconds`.

    Raises:
        WrongInput: A path or the way to verify cannot be used; nothing was kept.
        EnvironmentUnusable, EnvironmentStopped: The command or application that skills are verified with
            cannot be used.
    """
    began = time.monotonic()
    with writer_lock(root), opened(wishes.verify, wishes.folder, chromium=wishes.chromium) as replay:
        kept, reading = KeptTrajectories(root), Reading()
        reading.digests.update(kept.digests())
        new = list(read_trajectories(wishes.paths, wishes.form, reading, wishes.domain))
        kept.add(new)
        held = HeldLibraries(root)
        states = {domain: _made_of(state, wishes) for domain, state in kept.states().items()}
        made = held.made_of()
        domains = [domain for domain, state in states.items() if made.get(domain) != state]
        skills: Counter[str] = Counter()
        libraries: dict[str, DomainLibrary] = {}
        with progress("domains learned") as report:
            for number, domain in enumerate(domains, 1):
                before = held.ids(domain)
                libraries[domain] = build(domain, kept.of(domain), replay, wishes.support)
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
                "read": reading.read + reading.repeated, "new": reading.read, "unchanged": reading.repeated,
                "waiting": sum(own.success is None for _, own in new), "failed": dict(reading.reasons),
            },
            "windows": sum(one.windows for one in libraries.values()),
            "skills": {name: skills[name] for name in ("new", "unchanged", "retired")},
            "dropped": dict(Counter(d.reason for one in libraries.values() for d in one.dropped)),
            "verified": dict(Counter(how for skill in learned for how in skill.verified)),
            "domains": [{"domain": d, "skills": len(held.ids(d))} for d in held.domains()],
            "seconds": round(time.monotonic() - began, 2),
        }  # fmt: skip


def _made_of(state: str, wishes: InduceWishes) -> str:
    """Return a digest of all that decides a library."""
    said = f"{STAGE_VERSION} {state} {wishes.verify} {wishes.support}"
    return hashlib.sha256(said.encode()).hexdigest()


def _changes(before: set[str], library: DomainLibrary) -> Counter[str]:
    now = {skill.skill_id for skill in library.skills}
    return Counter(new=len(now - before), unchanged=len(now & before), retired=len(before - now))
