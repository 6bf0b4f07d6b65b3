"""The verification of installed skills: every file against the locks, and nothing else is asked."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tasks.retrieve.install.lock import LOCK_FILE, read_lock
from tasks.retrieve.install.skills_folder import STAGING, HandEdit, digests_in, hand_edits
from tasks.retrieve.install.skills_lock import SKILLS_LOCK, folder_hash, read_skills_lock

_OURS = (LOCK_FILE, SKILLS_LOCK, STAGING)


def differences(
    folder: Path, project: Path | None, others: Collection[Path] = ()
) -> dict[str, list[HandEdit]]:
    """Return how each skill of a folder differs from the locks, by the names of folders, sorted.

    What lies there and is in no lock differs too, and so does what `skills-lock.json` alone names and no
    folder holds. What programs leave, such as `__pycache__`, counts: an interpreter may run it.

    Args:
        folder: The folder of skills.
        project: Where `skills-lock.json` lies; None: there is none.
        others: Folders of the project in which skills of that lock may lie instead.

    Raises:
        StorageError: A lock is damaged.
    """
    lock = read_lock(folder)
    shared = {} if project is None else read_skills_lock(project)
    found: dict[str, list[HandEdit]] = {}
    for name, installed in lock.skills.items():
        edits = hand_edits(folder / name, installed.files, generated=True) + _executable(folder / name)
        hashed = shared.get(name, {}).get("computedHash")
        found[name] = edits or _hashed(folder / name, hashed)
    for name in sorted({*(os.listdir(folder) if folder.is_dir() else ())} - {*lock.skills, *_OURS}):
        if name in shared:
            found[name] = _hashed(folder / name, shared[name].get("computedHash"))
        else:
            found[name] = [HandEdit(".", "unlisted")]
    places = [place for place in {folder, *others} if place.is_dir()]
    for name in shared.keys() - found.keys():
        if not any((place / name).exists() for place in places):
            found[name] = [HandEdit("SKILL.md", "missing")]
    if lock.pending is not None:
        found.setdefault(lock.pending.name, []).append(HandEdit(LOCK_FILE, "pending"))
    return dict(sorted(found.items()))


def _executable(skill: Path) -> list[HandEdit]:
    """Return the files that may be executed: none is when it is installed."""
    files = ((path, skill / path) for path in digests_in(skill))
    return [
        HandEdit(p, "executable")
        for p, file in files
        if not file.is_symlink() and file.stat().st_mode & 0o111
    ]


def _hashed(skill: Path, said: str | None) -> list[HandEdit]:
    """Return a difference if the files of a skill have another hash than `skills-lock.json` says."""
    if said is None or folder_hash(skill_files(skill)) == said:
        return []
    return [HandEdit(SKILLS_LOCK, "hash")]


def skill_files(skill: Path) -> dict[str, bytes]:
    """Return the bytes of a skill's files by path, those that `skills-lock.json` counts: no links."""
    found = {}
    for above, folders, files in os.walk(skill):
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        for path in (Path(above, name) for name in files):
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(skill).as_posix()] = path.read_bytes()
    return found
