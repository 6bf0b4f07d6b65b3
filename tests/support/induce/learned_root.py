"""Roots that serve skills of a marketplace and learned ones."""

from __future__ import annotations

from pathlib import Path

from tasks.retrieve.suggest.stored import ServedSkills
from tests.support.induce.learning import RUNS, learned, served
from tests.support.induce.runs import Call
from tests.support.roots.skill_root import SkillRoot

HARBOUR = "harbour"
FLAG: list[Call] = [("find_flag", {"size": 3}, {"flag": "f3"}), ("raise_flag", {"flag": "f3"}, "up")]


def learned_root(made: SkillRoot, folder: Path) -> SkillRoot:
    """Publish a root, then what a few runs teach."""
    made.publish()
    learned(made.root, folder, RUNS)
    assert induced(made, "one")["published"]
    return made


def induced(root: SkillRoot, run_id: str) -> dict[str, object]:
    """Serve what a root has learned."""
    return served(root.root, root.root.folder / root.model, run_id)


def ids(root: SkillRoot, domain: str = HARBOUR) -> list[str]:
    """Return the ids of the skills of a domain that are served."""
    return [skill.skill_id for skill in ServedSkills(root.root).skills(domain)]
