"""Updating what is installed: what has changed since, the differences, and the newer text in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.commands.installing import (
    SHOWN,
    InstallSettings,
    as_dicts,
    installed_name,
    lock_shared,
    require_publisher,
    told_of,
)
from storage.errors import UnknownDocument, Withheld, WrongInput
from storage.root import Root
from tasks.crawl.source.identity import doc_key
from tasks.refine.risks.hits import HELD, rule_id
from tasks.retrieve.install.contents import (
    Installable,
    is_current,
    is_same_publisher,
    new_risks,
    prepare,
    require_rules,
)
from tasks.retrieve.install.lock import Installed
from tasks.retrieve.install.skills_folder import (
    HandEdit,
    SkillsFolder,
    how_to_replace,
    open_skills_folder,
    said,
)
from tasks.retrieve.revisions.edition import find_row, present_edition
from tasks.retrieve.revisions.show import changed_files

# What a skill is after an update that needs nobody to look at it.
DONE = ("current", "updated", "outdated")


def outdated_skills(root: Root, folder: Path) -> dict[str, Any]:
    """Return of each skill that is installed in a folder whether the corpus holds it otherwise by now.

    `state` is current, outdated or gone (from the corpus); `edited` are the files changed by hand. What is
    outdated has the `risks` that an update would add, null (and the `reason`) where none could be told;
    `held` says which newer revision is not served.

    Raises:
        WrongInput: There is no such folder.
        Locked, StorageError: As `installing.install_skills`.
    """
    with open_skills_folder(folder) as skills:
        told = [_foreseen(root, skills, name) for name in skills.skills]
        return {**told_of(skills), "skills": told}


def _foreseen(root: Root, skills: SkillsFolder, name: str) -> dict[str, Any]:
    told, row = _state(root, skills, name, skills.edits(name))
    if row is None or told["state"] == "current":
        return told
    try:
        installed = skills.skills[name]
        called = name if installed.called else None
        # Nothing is written: what would be refused is told.
        prepared = prepare(
            present_edition(root, row),
            (),
            [rule_id(r["code"]) for r in row["risks"] or ()],
            installed,
            called,
        )
    except (WrongInput, Withheld, UnknownDocument) as error:
        return {**told, "risks": None, "reason": str(error)}
    return {**told, "risks": _of_risks(installed, prepared)}


def update_skills(
    root: Root,
    folder: Path,
    texts: Sequence[str],
    accepted: Sequence[str],
    settings: InstallSettings,
    *,
    dry_run: bool,
    any_publisher: bool = False,
    project: Path | None = None,
) -> dict[str, Any]:
    """Put what the corpus holds now in place of what is installed, each skill in one step.

    A skill that was edited by hand (`edited`), that cannot be installed as it is now or has a new risk from
    `warning` on (`refused`), or that the corpus holds no more (`gone`) stays as it is, with the `reason`.
    What is, or would be, put in place has the differences of its `files`, as `skillery diff --json` has them,
    of its `risks` and `licence`.

    Args:
        root: The root.
        folder: The folder of skills.
        texts: Which ones, by name or id; none: all of them.
        accepted: Rules of risks that are not refused, besides those accepted before.
        settings: What is refused.
        dry_run: Whether to write nothing: what would be written is `outdated`.
        any_publisher: Whether what another publisher has put at its id by now is not refused.
        project: As for `installing.install_skills`.

    Raises:
        WrongInput: There is no such folder, or one of `texts` is not installed there.
        Locked, StorageError: As `installing.install_skills`.
    """
    rules = require_rules(accepted)
    with open_skills_folder(folder) as skills:
        names = [installed_name(skills, text) for text in texts] or list(skills.skills)
        how = {"dry_run": dry_run, "any_publisher": any_publisher}
        told = [_update(root, skills, n, rules, settings, **how) for n in dict.fromkeys(names)]
        lock_shared(project, skills, [one["name"] for one in told if one["state"] == "updated"])
        return {**told_of(skills), "dry_run": dry_run, "skills": told}


def _state(
    root: Root, skills: SkillsFolder, name: str, edits: list[HandEdit]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what is said of an installed skill, and its row of the corpus."""
    installed = skills.skills[name]
    told: dict[str, Any] = {"name": name, "doc_id": installed.doc_id, "edited": as_dicts(edits)}
    was = {"revision": installed.revision[:SHOWN], "commit": installed.commit}
    told["from"] = {**was, "content_hash": installed.content_hash, **installed.publisher}
    if (row := _row(root, installed.doc_id)) is None:
        return {**told, "state": "gone", "to": None}, None
    known = installed.hits is not None  # an older lock does not tell whose the same text was
    same = is_current(installed, row) and (not known or is_same_publisher(installed, row))
    told["to"] = {name: row[name] for name in ("doc_id", "commit", "content_hash", *installed.publisher)}
    held = next((found["message"] for found in row["findings"] or () if found["code"] == HELD), None)
    told |= {"held": held} if held else {}
    return {**told, "state": "current" if same else "outdated"}, row


def _row(root: Root, doc_id: str) -> dict[str, Any] | None:
    """Return the row of a document, or of the one onto which it was folded; None: the corpus has neither."""
    try:
        row, alias = find_row(root, doc_id)
    except UnknownDocument:
        return None
    # One whose id merely ends alike is another document.
    return row if alias or doc_key(row["doc_id"]) == doc_key(doc_id) else None


def _update(
    root: Root,
    skills: SkillsFolder,
    name: str,
    rules: Sequence[str],
    settings: InstallSettings,
    *,
    dry_run: bool,
    any_publisher: bool,
) -> dict[str, Any]:
    installed, edits = skills.skills[name], skills.edits(name)
    told, row = _state(root, skills, name, edits)
    if edits:
        return {**told, "state": "edited", "reason": f"{said(edits)}; {how_to_replace(name)}"}
    if row is None:
        return {**told, "reason": f"the corpus holds {installed.doc_id} no more; it stays as it is"}
    if told["state"] == "current":
        return told
    try:
        if not any_publisher:
            require_publisher(root, installed, row)
        called = name if installed.called else None
        prepared = prepare(present_edition(root, row), settings.refuse, rules, installed, called)
        _require_name(name, prepared)
    except (WrongInput, Withheld, UnknownDocument) as error:
        return {**told, "state": "refused", "reason": str(error)}
    told |= prepared.told() | _differences(skills.path / name, installed, prepared)
    told["to"]["revision"] = prepared.installed.revision[:SHOWN]
    if not dry_run:
        skills.put(name, prepared.installed, prepared.contents, before=installed.doc_id)
    return {**told, "state": "outdated" if dry_run else "updated"}


def _require_name(name: str, prepared: Installable) -> None:
    if prepared.name != name:
        msg = f"it is called {prepared.name} by now: `skillery remove {name}` and install it again"
        raise WrongInput(msg)


def _differences(folder: Path, installed: Installed, prepared: Installable) -> dict[str, Any]:
    """Return what changes in a folder that nobody edited."""
    licences = [installed.licence, prepared.installed.licence]
    return {
        "files": _of_files(folder, installed.files, prepared),
        "risks": _of_risks(installed, prepared),
        "licence": licences if licences[0] != licences[1] else None,
    }


def _of_risks(was: Installed, now: Installable) -> dict[str, Any]:
    gone = sorted({*was.risks}.difference(now.installed.risks))
    return {"added": new_risks(was, now.risks, now.installed.hits or ()), "gone": gone}


def _of_files(folder: Path, was: Mapping[str, str], prepared: Installable) -> list[dict[str, Any]]:
    def content(path: str, side: int) -> tuple[bytes, int]:
        held = prepared.contents[path] if side else (folder / path).read_bytes()
        return held, len(held)

    return changed_files(was, prepared.installed.files, content)
