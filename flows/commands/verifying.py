"""Verifying installed skills against their locks, and installing exactly what the locks say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.commands.installing import InstallSettings, as_dicts, told_of
from flows.commands.registries import editions_from
from flows.settings import Settings
from storage.errors import SkilleryError, WrongInput
from storage.root import Root
from tasks.retrieve.install.contents import Installable, prepare
from tasks.retrieve.install.lock import LOCK_FILE, Installed
from tasks.retrieve.install.skills_folder import SkillsFolder, open_skills_folder, said
from tasks.retrieve.install.skills_lock import WELL_KNOWN, Entry, folder_hash, read_skills_lock
from tasks.retrieve.install.verification import differences
from tasks.retrieve.revisions.edition import Edition
from tasks.retrieve.revisions.show import open_edition


def verify_skills(folder: Path, project: Path | None, others: Collection[Path]) -> dict[str, Any]:
    """Tell how the files of a folder of skills differ from its locks; nothing is asked for elsewhere.

    Args:
        folder: The folder of skills.
        project: Where `skills-lock.json` lies; None: there is none.
        others: Folders in which skills of that lock may lie instead.

    Raises:
        WrongInput: Nothing is there to be verified.
        StorageError: A lock is damaged.
    """
    found = differences(folder, project, others)
    if not found:
        msg = (
            f"nothing is installed in {folder}, and no lock names anything: name a folder by --to or --agent"
        )
        raise WrongInput(msg)
    skills = [
        {"name": name, "state": "differs" if edits else "verified", "differences": as_dicts(edits)}
        for name, edits in found.items()
    ]
    verified = not any(found.values())
    return {"folder": str(folder), "lock": str(folder / LOCK_FILE), "verified": verified, "skills": skills}


def install_frozen(
    root: Root, folder: Path, project: Path | None, settings: Settings, rules: InstallSettings
) -> dict[str, Any]:
    """Install what the locks of a folder say, and nothing else; what is there as they say stays.

    Each skill has its `state`, and a `reason` where it is `failed`: it was edited, is held nowhere with these
    bytes, or is refused by now.

    Raises:
        WrongInput: No lock says anything.
        Locked, StorageError: As `installing.install_skills`.
    """
    shared = {} if project is None else read_skills_lock(project)
    with open_skills_folder(folder, create=True) as skills:
        wanted: dict[str, Installed | None] = {**dict.fromkeys(shared), **skills.skills}
        if not wanted:
            msg = f"neither {folder / LOCK_FILE} nor a skills-lock.json says anything: install skills first"
            raise WrongInput(msg)
        edits = differences(folder, project)
        told = []
        for name, installed in sorted(wanted.items()):
            if not edits[name]:
                told.append({"name": name, "state": "unchanged"})
            elif (folder / name).exists():
                reason = f"it differs from its lock: {said(edits[name])}"
                told.append({"name": name, "state": "failed", "reason": reason})
            else:
                told.append(_restored(root, skills, name, installed, shared.get(name, {}), settings, rules))
        return {**told_of(skills), "skills": told}


def _restored(
    root: Root, skills: SkillsFolder, name: str, installed: Installed | None, entry: Entry,
    settings: Settings, rules: InstallSettings,
) -> dict[str, Any]:  # fmt: skip
    why = "its lock names no source that is read here"
    for found in _held(root, name, installed, entry, settings):
        if not isinstance(found, Edition):
            why = found
            continue
        try:
            accepted = () if installed is None else installed.accepted_risks
            prepared = prepare(found, rules.refuse, accepted, installed, called=name)
        except SkilleryError as error:
            why = str(error)
            continue
        if _is_exact(prepared, installed, entry):
            skills.put(name, installed or prepared.installed, prepared.contents)
            return {"name": name, "state": "installed"}
        why = f"{found.row['source']} gives other bytes than the lock names"
    return {"name": name, "state": "failed", "reason": why}


def _is_exact(prepared: Installable, installed: Installed | None, entry: Mapping[str, Any]) -> bool:
    if installed is not None:
        return prepared.installed.files == installed.files
    return folder_hash(prepared.contents) == entry.get("computedHash")


def _held(
    root: Root, name: str, installed: Installed | None, entry: Entry, settings: Settings
) -> Iterator[Edition | str]:
    """Yield what a lock may mean, of the root, then of the registry that it names, or why there is none."""
    folder = str(entry.get("skillPath", "")).removesuffix("SKILL.md").strip("/")
    url, kind = entry.get("sourceUrl"), entry.get("sourceType")
    if installed is not None:
        wanted: tuple[str, str | None] = (installed.doc_id, installed.revision)
        if installed.source.startswith(f"{WELL_KNOWN}:"):
            url, kind, name = installed.source.partition(":")[2], WELL_KNOWN, wanted[0].rpartition("/")[2]
    else:
        wanted = ("/".join(filter(None, (str(entry.get("source")), folder))), entry.get("ref"))
    try:
        yield open_edition(root, *wanted)[0]
    except SkilleryError as error:
        yield str(error)
    if kind == WELL_KNOWN and url:
        try:
            yield from editions_from(root, settings, str(url), [name])
        except SkilleryError as error:
            yield str(error)
