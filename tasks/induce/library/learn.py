"""Learns the libraries of a root: keeps what is new of trajectories, and builds what is made of them anew."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from storage.root import Root
from storage.tombstones import Forgotten
from tasks.induce.library.build import STAGE_VERSION, DomainLibrary, build
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.library.judge import LlmTrajectoryJudge
from tasks.induce.library.llm_inducer import LlmInducer
from tasks.induce.replay.verify import Replay
from tasks.induce.skills.actions import Granularity
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.trajectories.read import DOMAIN, Format, Reading, latest, read_trajectories
from tasks.induce.trajectories.record import Trajectory
from tasks.models.llm.ask import Llm

DECLARED, RECURRENCE = "declared", "recurrence"
_NAMED = 20  # of the rows that were not read


@dataclass(frozen=True, slots=True)
class Learning:
    """How skills are learned: how they are verified, the least number of tasks that did one, and by whom."""

    verify: str = "recorded"  # or `command:CMD`
    folder: Path = Path()  # in which the command runs
    support: int = 1
    granularity: Granularity = "window"  # what skills are cut out of
    judge: LlmTrajectoryJudge | None = None  # None: the files' verdicts are taken
    inducer: LlmInducer | None = None  # None: recurrence alone
    llm: Llm | None = None  # that both ask

    def told(self) -> str:
        """Return all that decides what is learned of the same runs."""
        judge = self.judge.name if self.judge else DECLARED
        inducer = self.inducer.name if self.inducer else RECURRENCE
        return f"{self.verify} {self.support} {self.granularity} {judge} {inducer}"

    def unfinished(self) -> bool:
        """Tell whether the next run may learn more of the same: the LLM gave no answer this time."""
        return self.llm is not None and self.llm.unfinished

    def judged(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return trajectories with the judge's verdicts in place of theirs."""
        if self.judge is None:
            return trajectories
        verdicts = self.judge.verdicts(trajectories)
        return [replace(one, success=said) for one, said in zip(trajectories, verdicts, strict=True)]


def keep_new(
    root: Root, paths: Iterable[Path], form: Format = "trajectories", domain: str = DOMAIN
) -> dict[str, Any]:
    """Keep the trajectories of files that are new.

    Returns:
        How many were `read`, `new`, `judged` (their verdict came later), `unchanged`, `waiting` (new, and not
        judged), `redacted`, `forgotten` (left out, as `forget` named them), and `failed` by reason, of which
        `unread` names the first 20.

    Raises:
        WrongInput: A path cannot be used; nothing was kept.
    """
    kept, reading = KeptTrajectories(root), Reading()
    reading.digests.update(kept.digests())
    gone = Forgotten.load(root).named("trajectory")
    given = latest(read_trajectories(paths, form, reading, domain))
    new = [(row, own) for row, own in given if own.trajectory_id not in gone]
    forgotten = len(given) - len(new)
    kept.add(new)
    return {
        "read": reading.read + reading.judged + reading.repeated, "forgotten": forgotten,
        "new": reading.read - forgotten, "judged": reading.judged, "unchanged": reading.repeated,
        "waiting": sum(own.success is None for _, own in new), "redacted": reading.redacted,
        "failed": dict(reading.reasons), "unread": [asdict(row) for row in reading.unread[:_NAMED]],
    }  # fmt: skip


def to_learn(root: Root, how: Learning) -> dict[str, str]:
    """Return by domain what its library is to be made of, where that is not what it was made of."""
    held = HeldLibraries(root)
    made, domains = held.made_of(), held.domains()
    found = {}
    for domain, state in KeptTrajectories(root).states().items():
        # Of all that decides a library.
        digest = hashlib.sha256(f"{STAGE_VERSION} {state} {how.told()}".encode()).hexdigest()
        if domain not in domains or made.get(domain) != digest:
            found[domain] = digest
    return found


def learn(root: Root, domain: str, made_of: str, replay: Replay, how: Learning) -> dict[str, Any]:
    """Build the library of a domain anew, of what `to_learn` says, and put it in place of the one before.

    Returns:
        `windows`, `waiting` (trajectories without a verdict), `skills` (new, changed, unchanged, retired),
        `inducers` (skills by who found them), `dropped` by reason, `verified` by how.

    Raises:
        EnvironmentUnusable, EnvironmentStopped: The command that skills are verified with cannot be used.
        LlmDenied: The server of the LLM denies access, or has no such model.
    """
    held = HeldLibraries(root)
    before, runs = held.by_id(domain), how.judged(KeptTrajectories(root).of(domain))
    found = build(
        domain, runs, replay, how.support, how.granularity, how.inducer.induce if how.inducer else None
    )
    forgotten = Forgotten.load(root)
    found.forget(forgotten.named("learned"), forgotten.bodies("learned"))
    HeldVerdicts(root).put(domain, runs, declared=how.judge is None)
    # What an LLM left open is asked again by the next run.
    held.put(domain, found, "" if how.unfinished() else made_of)
    return {
        "windows": found.windows, "waiting": sum(one.success is None for one in runs),
        "skills": _changes(before, found), "inducers": dict(Counter(s.inducer for s in found.skills)),
        "dropped": dict(Counter(one.reason for one in found.dropped)),
        "verified": dict(Counter(how for skill in found.skills for how in skill.verified)),
    }  # fmt: skip


def _changes(before: Mapping[str, InducedSkill], library: DomainLibrary) -> dict[str, int]:
    now = {skill.skill_id: skill for skill in library.skills}
    stayed = [skill == before[skill_id] for skill_id, skill in now.items() if skill_id in before]
    return {
        "new": len(now) - len(stayed), "changed": stayed.count(False), "unchanged": stayed.count(True),
        "retired": len(before) - len(stayed),
    }  # fmt: skip


def summed(root: Root, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what `learn` gave of several domains as one, and the skills of all `domains` that there are."""
    parts = ("skills", "inducers", "dropped", "verified")
    counts = {name: sum((Counter(one[name]) for one in found), Counter()) for name in parts}
    skills = {name: counts["skills"][name] for name in ("new", "changed", "unchanged", "retired")}
    others = {name: dict(counts[name]) for name in parts[1:]}
    held = [{"domain": domain, "skills": count} for domain, count in HeldLibraries(root).domains().items()]
    windows = sum(one["windows"] for one in found)
    return {"windows": windows, "skills": skills, **others, "domains": held}
