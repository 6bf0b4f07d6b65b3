"""Fills a world with skills made of the sample skills' texts, the same ones for the same seed."""

from __future__ import annotations

import functools
import random
import re

from tests.support.marketplace.repository import Blob, Repository, executable
from tests.support.marketplace.world import World, skill_folders
from tests.support.paths import PROJECT

SAMPLES = PROJECT / "tasks" / "crawl" / "marketplace"
_LICENCES = ("MIT", "MIT", "Apache-2.0", "BSD-3-Clause", "NOASSERTION", None)
_WORD = re.compile(r"\b[a-z]{6,12}\b")
_LAYOUTS = ("skills/{}", "skills/{}", ".claude/skills/{}", "{}", "packs/Field Work/{}", "skills/tools/{}")
_TERMS = "The holder lets anyone use, copy and change this work, without any warranty.\n"


@functools.cache
def _sections() -> tuple[str, ...]:
    """The sections of the sample skills in Latin script: a heading with what stands below it."""
    texts = [path.read_text("utf-8") for path in sorted(SAMPLES.glob("*/*/SKILL.md"))]
    bodies = [text.split("\n---", 1)[-1] for text in texts if len(text.encode()) < 1.1 * len(text)]
    sections = [part.strip() for body in bodies for part in re.split(r"(?m)^(?=## )", body)]
    return tuple(section for section in sections if 200 <= len(section) <= 2_500)


@functools.cache
def _words() -> tuple[str, ...]:
    return tuple(sorted({word for section in _sections() for word in _WORD.findall(section)}))


def _exchanged(text: str, drawn: random.Random) -> str:
    """Put another word in the place of nearly every third, the same one wherever it stands."""
    known = sorted(set(_WORD.findall(text)))
    other = {word: drawn.choice(_words()) for word in known if drawn.random() < 0.3}
    return _WORD.sub(lambda match: other.get(match[0], match[0]), text)


def skill_text(name: str, drawn: random.Random) -> str:
    """Write a SKILL.md of 2 to 17 KB, half of them shorter than 5."""
    size, sections, length = int(2_000 * 7.5 ** (drawn.random() ** 1.5)), list[str](), 0
    while length < size:
        sections.append(_exchanged(drawn.choice(_sections()), drawn))
        length += len(sections[-1])
    topic = " ".join(drawn.choice(_words()) for _ in range(6))
    told = drawn.choice(
        ["手順を一つずつ説明します。", *[f"Use it when {drawn.choice(_words())} fails."] * 30]
    )
    description = f"Helps with {topic}. {told}"
    title = name.replace("-", " ").capitalize()
    return (
        f"---\nname: {name}\ndescription: {description}\n---\n\n# {title}\n\n" + "\n\n".join(sections) + "\n"
    )


def _bundle(folder: str, name: str, drawn: random.Random) -> dict[str, bytes | Blob]:
    files: dict[str, bytes | Blob] = {f"{folder}/SKILL.md": skill_text(name, drawn).encode()}
    if drawn.random() < 0.15:
        script = f'#!/bin/sh\n# {drawn.choice(_words())}\nsort -u "$1" | head -n {drawn.randint(3, 90)}\n'
        files[f"{folder}/scripts/run.sh"] = executable(script.encode())
    if drawn.random() < 0.1:
        note = _exchanged(drawn.choice(_sections()), drawn)
        files[f"{folder}/references/notes.md"] = note.encode()
    if drawn.random() < 0.08:
        files[f"{folder}/LICENSE"] = f"{name} licence\n\n{_TERMS}".encode()
    return files


def populate(world: World, repositories: int = 600, skills: int = 2_000, seed: int = 7) -> list[Repository]:
    """Commit this many skills in this many repositories: one each, the rest to a few large ones.

    Raises:
        ValueError: There are fewer skills than repositories.
    """
    if skills < repositories:
        msg = f"{skills} skills do not fill {repositories} repositories"
        raise ValueError(msg)
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    sizes = [1] * repositories
    for _ in range(skills - repositories):
        # Small numbers come up far more often: few repositories hold many skills.
        sizes[int(repositories * drawn.random() ** 2)] += 1
    return [_repository(world, number, size, drawn) for number, size in enumerate(sizes)]


def _repository(world: World, number: int, size: int, drawn: random.Random) -> Repository:
    # Two hundred owners have a few repositories each.
    home = number % 200
    made = world.repository(
        f"{_words()[home]}-{home}/{drawn.choice(_words())}-{number}",
        default_branch=drawn.choice(["main", "main", "main", "master"]),
        repo_id=900_000 + number,
        stars=int(3 * 900 ** (drawn.random() ** 2)),
        licence=drawn.choice(_LICENCES),
    )
    files: dict[str, bytes | Blob | None] = {
        "README.md": f"# {made.repo}\n\n{drawn.choice(_words())}\n".encode()
    }
    if made.licence not in {None, "NOASSERTION"}:
        files["LICENSE"] = f"{made.licence}\n\n{_TERMS}".encode()
    layout = drawn.choice(_LAYOUTS)
    for place in range(size):
        name = f"{drawn.choice(_words())}-{drawn.choice(_words())}-{number}-{place}"
        files.update(_bundle(layout.format(name), name, drawn))
    made.commit(files)
    return made


def change(world: World, share: float = 0.01, seed: int = 11) -> list[str]:
    """Write this share of the skills anew, one commit a repository; return `owner/repo/folder` of each."""
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    places = [
        (repository, folder)
        for repository in world.repositories
        if repository.fate == "open" and repository.branches
        for folder in sorted(skill_folders(repository.head))
    ]
    chosen = drawn.sample(places, max(1, round(len(places) * share)))
    by_repository: dict[Repository, dict[str, bytes | Blob | None]] = {}
    for repository, folder in chosen:
        path = f"{folder}/SKILL.md".lstrip("/")
        name = folder.rpartition("/")[2] or repository.repo
        by_repository.setdefault(repository, {})[path] = skill_text(name, drawn).encode()
    for repository, files in by_repository.items():
        repository.commit(files)
    return sorted(f"{repository.name}/{folder}".rstrip("/") for repository, folder in chosen)
