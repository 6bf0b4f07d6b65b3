"""Learns skills of runs into a root, as `skillery induce` does, and drafts as an inducer is given them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from storage.root import Root
from tasks.induce.library.build import DroppedSkill, SkillDraft, build
from tasks.induce.library.learn import Learning, keep_new, learn, summed, to_learn
from tasks.induce.replay.verify import RecordedReplay, opened
from tasks.induce.trajectories.record import Trajectory
from tasks.refine.licences.policy import SERVE_POLICY
from tasks.retrieve.suggest.stored import ServedSkills
from tasks.retrieve.versions.learned import serve_learned
from tests.support.induce.runs import Call, add_bed, mooring
from tests.support.roots.skill_root import SkillRoot

GATE = {"max_shrink": 0.2, "few": 5}
RUNS = [
    run
    for n, (bed, boat) in enumerate(
        zip(("Fern corner", "Rose row", "Lily pond"), ("Petrel", "Auk", "Tern"), strict=True)
    )
    for run in (add_bed(f"g{n}", f"bed-{n}", bed), mooring(f"h{n}", f"boat-{n}", boat, f"B{n}"))
]


def written(path: Path, runs: Iterable[Trajectory]) -> Path:
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs), "utf-8")
    return path


def learned(
    root: Root, folder: Path, runs: Iterable[Trajectory], how: Learning | None = None
) -> dict[str, Any]:
    """Keep runs and build the libraries of their domains; return what came of both."""
    own = how or Learning()
    read = keep_new(root, [written(folder / "runs.jsonl", runs)])
    with opened(own.verify, own.folder) as replay:
        found = [learn(root, *each, replay, own) for each in to_learn(root, own).items()]
    return {"trajectories": read, **summed(root, found)}


def served(root: Root, encoder: Path, run_id: str, how: str = "as ever", keep: int = 7) -> dict[str, Any]:
    """Serve what is learned; `encoder` is the folder of an export below the root."""
    return serve_learned(root, str(encoder), run_id, how, gate=GATE, policy=asdict(SERVE_POLICY), keep=keep)


HARBOUR = "harbour"
FLAG: list[Call] = [("find_flag", {"size": 3}, {"flag": "f3"}), ("raise_flag", {"flag": "f3"}, "up")]


def learned_root(made: SkillRoot, folder: Path) -> SkillRoot:
    """Publish a root, then what a few runs teach."""
    made.publish()
    learned(made.root, folder, RUNS)
    assert induced(made, "one")["published"]
    return made


def induced(root: SkillRoot, run_id: str, keep: int = 7) -> dict[str, object]:
    """Serve what a root has learned."""
    return served(root.root, root.root.folder / root.model, run_id, keep=keep)


def ids(root: SkillRoot, domain: str = HARBOUR) -> list[str]:
    """Return the ids of the skills of a domain that are served."""
    return [skill.skill_id for skill in ServedSkills(root.root).skills(domain)]


def drafts_of(domain: str, runs: Sequence[Trajectory]) -> list[SkillDraft]:
    """Return what recurrence finds in runs, before it is verified."""
    noted: list[SkillDraft] = []

    def noting(drafts: Sequence[SkillDraft], *_: object) -> tuple[list[SkillDraft], list[DroppedSkill]]:
        noted.extend(drafts)
        return noted, []

    build(domain, runs, RecordedReplay(), induce=noting)
    return noted
