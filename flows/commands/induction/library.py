"""Lists, shows and exports the library of learned skills, for the command."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.crawl.source.lookup import nearest
from tasks.induce.skills.skill import InducedSkill
from tasks.retrieve.suggest.stored import ServedSkills

_WORD = re.compile(r"[a-z]{4,}")
_SAID_BY, _MOST_WORDS = 3, 20  # tasks that say a word; words of a skill


def learned(root: Root, domain: str | None, out: Path | None, export: Path | None) -> dict[str, Any]:
    """Return `{skills, written}`, and write what is asked for.

    Raises `WrongInput` if the domain has no library, nothing was learned, or a file cannot be written.
    """
    served = ServedSkills(root)
    domains = [served.named(domain)] if domain is not None else served.domains
    skills = [skill for one in domains for skill in served.skills(one)]
    rows, written = [skill.told() for skill in skills], list[str]()
    if out is not None:
        write_lines(out, rows)
        written.append(str(out))
    if export is not None:
        folder_at(export, "--export")
        if any(export.iterdir()):
            msg = f"--export {export} is not empty: skills that are no longer learned would stay in it"
            raise WrongInput(msg)
        _export(skills, export, {one: _said(served.domain(one).tasks) for one in domains})
        written.append(str(export))
    return {"skills": rows, "written": written}


def shown(root: Root, skill_id: str) -> dict[str, Any]:
    """Return one skill by its id, or by an end of it that no other has.

    Raises `WrongInput` if there is none; the nearest ids are named.
    """
    served = ServedSkills(root)
    every = {skill.skill_id: skill for one in served.domains for skill in served.skills(one)}
    found = [skill_id] if skill_id in every else [one for one in every if one.endswith(skill_id)]
    if len(found) != 1:
        near = found[:5] or nearest(skill_id, every)
        said = "is not the id of one skill" if found else "is no learned skill"
        raise WrongInput(f"{skill_id!r} {said}; near: {', '.join(near) or 'none'}")
    return every[found[0]].told()


def _said(tasks: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return by task the words of its text that three tasks of the domain say: others tell of it alone."""
    words = {task_id: frozenset(_WORD.findall(task.lower())) for task_id, task in tasks.items()}
    counted = Counter(word for own in words.values() for word in own)
    return {task: frozenset(word for word in own if counted[word] >= _SAID_BY) for task, own in words.items()}


def _words(skill: InducedSkill, said: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the words that most of a skill's tasks say."""
    counted = Counter(word for task in skill.tasks for word in said.get(task, ()))
    return sorted(counted, key=lambda word: (-counted[word], word))[:_MOST_WORDS]


def _export(
    skills: Iterable[InducedSkill], folder: Path, said: Mapping[str, Mapping[str, frozenset[str]]]
) -> None:
    """Write a folder with a SKILL.md for each skill, as `run --source dir:` reads them."""
    for skill in skills:
        domain, _, digest = skill.skill_id.rpartition("/")
        # Domains whose names are the same but for signs and case have folders of their own.
        of_domain = f"{_plain(domain)[:40]}-{hashlib.sha256(domain.encode()).hexdigest()[:8]}"
        own = folder / of_domain / f"{_plain(skill.name)[:40]}-{digest[:8]}"
        try:
            own.mkdir(parents=True, exist_ok=True)
            (own / "SKILL.md").write_text(_markdown(skill, own.name, _words(skill, said[domain])), "utf-8")
        except OSError as error:
            msg = f"--export {own} cannot be written ({error.strerror}): give a folder that is empty"
            raise WrongInput(msg) from error


def _plain(text: str) -> str:
    return (
        "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()) or "skill"
    )


def _markdown(skill: InducedSkill, name: str, words: Sequence[str]) -> str:
    says = f"{skill.domain}: {skill.description}".replace("\\", " ").replace('"', "'")
    how = ", ".join(skill.verified) or "nothing"
    return (
        f'---\nname: {name}\ndescription: "{says}"\n---\n\n# {skill.name.replace("_", " ")}\n\n'
        f"Learned from {skill.support} tasks of {skill.domain}; verified by {how}.\n\n"
        f"Said in such tasks: {', '.join(words) or 'nothing that several say'}.\n\n"
        f"## Steps\n\n```python\n{skill.code}```\n\n"
        "Arguments are given by the caller. `on` names role and label of what an action is on, with a number"
        " the n-th of those alike; `..._from` reads a value off the result of an earlier call.\n"
    )
