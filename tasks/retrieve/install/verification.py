"""The verification of installed skills: every file against the locks, and nothing else is asked."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tasks.retrieve.install.lock import LOCK_FILE, read_lock
from tasks.retrieve.install.skills_folder import REJECTED, STAGING, HandEdit, digests_in, hand_edits
from tasks.retrieve.install.skills_lock import SKILLS_LOCK, folder_hash, read_skills_lock

_OURS = (LOCK_FILE, SKILLS_LOCK, STAGING)


def differences(
    folder: Path, project: Path | None, others: Collection[Path] = ()
) -> dict[str, list[HandEdit]]:
    """Return how each skill of a folder differs from the locks, by the names of folders, sorted.

    What lies there and is in no lock differs too, and so does what `skills-lock.json` alone names and no
    folder holds; what another folder holds is verified where it lies. What programs leave, such as
    `__pycache__`, counts: an interpreter may run it. Raises `StorageError` if a lock is damaged. `project`:
    where `skills-lock.json` lies; None: there is none. `others`: folders of the project in which skills of
    that lock may lie instead.
    """
    lock = read_lock(folder)
    shared = {} if project is None else read_skills_lock(project)
    found: dict[str, list[HandEdit]] = {}
    for name, installed in lock.skills.items():
        edits = hand_edits(folder / name, installed.files, generated=True) + _executable(folder / name)
        hashed = shared.get(name, {}).get("computedHash")
        found[name] = edits or (_hashed(folder / name, hashed) if hashed is not None else [])
    ours = {*lock.skills, *_OURS, *(f"{name}{REJECTED}" for name in lock.skills)}
    for name in {*(os.listdir(folder) if folder.is_dir() else ())} - ours - shared.keys():
        found[name] = [HandEdit(".", "unlisted")]
    for name in shared.keys() - found.keys():
        places = [place / name for place in (folder, *others) if os.path.lexists(place / name)]
        if not places:
            found[name] = [HandEdit("SKILL.md", "missing")]
        for place in places[:1] if folder / name in places else places:
            edits = _shared_edits(place, project, shared[name].get("computedHash"))
            found.setdefault(name, []).extend(edits)
    if lock.pending is not None:
        found.setdefault(lock.pending.name, []).append(HandEdit(LOCK_FILE, "pending"))
    return dict(sorted(found.items()))


def _executable(skill: Path) -> list[HandEdit]:
    files = ((path, skill / path) for path in digests_in(skill))
    return [
        HandEdit(p, "executable")
        for p, file in files
        if not file.is_symlink() and file.stat().st_mode & 0o111
    ]


def _shared_edits(skill: Path, project: Path | None, said: str | None) -> list[HandEdit]:
    """Return how a skill differs that `skills-lock.json` alone names, what its hash leaves out included.

    Other clients link a skill's folder from one agent's to another's: such a link is followed.
    """
    if skill.is_symlink():
        real = skill.resolve()
        if project is None or real.name != skill.name or not real.is_relative_to(project.resolve()):
            return [HandEdit(".", "edited")]
        skill = real
    uncounted = digests_in(skill).keys() - skill_files(skill).keys()
    edits = [HandEdit(path, "added") for path in sorted(uncounted)]
    return [*edits, *_executable(skill), *_hashed(skill, said)]


def _hashed(skill: Path, said: str | None) -> list[HandEdit]:
    return [] if folder_hash(skill_files(skill)) == said else [HandEdit(SKILLS_LOCK, "hash")]


def skill_files(skill: Path) -> dict[str, bytes]:
    """Return the bytes of a skill's files by path, those that `skills-lock.json` counts: no links."""
    found = {}
    for above, folders, files in os.walk(skill):
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        for path in (Path(above, name) for name in files):
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(skill).as_posix()] = path.read_bytes()
    return found
