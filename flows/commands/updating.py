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
from storage.errors import StorageError, UnknownDocument, Withheld, WrongInput
from storage.folder import put_file
from storage.root import Root
from tasks.crawl.source.identity import doc_key
from tasks.refine.risks.hits import HELD, rule_id
from tasks.retrieve.install.contents import (
    Installable,
    is_current,
    is_same_publisher,
    new_risks,
    planned,
    prepare,
    require_rules,
)
from tasks.retrieve.install.lock import Installed
from tasks.retrieve.install.merge import MergeConflict, Side, merged_files
from tasks.retrieve.install.skills_folder import (
    HandEdit,
    SkillsFolder,
    contents_in,
    digests_in,
    digests_of,
    how_to_replace,
    open_skills_folder,
    said,
)
from tasks.retrieve.install.skills_lock import change_skills_lock, entry_of, read_skills_lock
from tasks.retrieve.revisions.edition import SKILL_FILE, find_row, past_edition, present_edition
from tasks.retrieve.revisions.history import revisions_of
from tasks.retrieve.revisions.show import changed_files

# What a skill is after an update that needs nobody to look at it.
DONE = ("current", "updated", "merged", "outdated")


def outdated_skills(root: Root, folder: Path) -> dict[str, Any]:
    """Return of each skill that is installed in a folder whether the corpus holds it otherwise by now.

    `state` is current, outdated or gone (from the corpus); `edited` are the files changed by hand. What is
    outdated has the `risks` that an update would add, null (and the `reason`) where none could be told;
    `held` says which newer revision is not served.

    Raises `WrongInput` if there is no such folder, and `Locked` or `StorageError` as
    `installing.install_skills`.
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
            present_edition(root, row), (), [rule_id(r["code"]) for r in row["risks"] or ()], installed,
            called,
        )  # fmt: skip
    except (WrongInput, Withheld, UnknownDocument) as error:
        return {**told, "risks": None, "reason": str(error)}
    return {**told, "risks": _of_risks(installed, prepared)}


def update_skills(
    root: Root, folder: Path, texts: Sequence[str], accepted: Sequence[str], settings: InstallSettings, *,
    dry_run: bool, any_publisher: bool = False, project: Path | None = None, prefer: Side | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Put what the corpus holds now in place of what is installed, each skill in one step.

    Into a skill that was edited by hand it is merged; where both changed the same, the folder stays as it is
    (`conflict`), and NAME.rej beside it lists what conflicts. A skill whose installed version is not kept any
    more (`edited`), that cannot be installed as it is now or has a new risk from
    `warning` on (`refused`), or that the corpus holds no more (`gone`) stays as it is, with the `reason`.
    What is, or would be, put in place has the differences of its `files`, as `skillery diff --json` has them,
    of its `risks` and `licence`.

    The parameters are as for `installing.install_skills`; without texts all are updated, and in a dry run,
    which writes nothing, what would be is `outdated`. Raises `WrongInput` if there is no such folder, or one
    of `texts` is not installed there, and `Locked` or `StorageError` as `installing.install_skills`.
    """
    rules = require_rules(accepted)
    with open_skills_folder(folder) as skills:
        names = [installed_name(skills, text) for text in texts] or list(skills.skills)
        how: dict[str, Any] = {
            "dry_run": dry_run, "any_publisher": any_publisher, "prefer": prefer, "project": project,
        }  # fmt: skip
        told: list[dict[str, Any]] = []
        try:
            for name in dict.fromkeys(names):
                told.append(_updated(root, skills, name, rules, settings, **how))  # noqa: PERF401 (kept on failure)
        finally:
            # An update that was killed may have written a skill, and not yet the lock.
            known = () if dry_run or project is None else read_skills_lock(project)
            kept = [one["name"] for one in told if one["state"] == "current" and not one["edited"]]
            written = [one["name"] for one in told if one["state"] in ("updated", "merged")]
            lock_shared(project, skills, [*written, *(name for name in kept if name in known)])
        return {**told_of(skills), "dry_run": dry_run, "skills": told}


def _updated(root: Root, skills: SkillsFolder, name: str, *rules: Any, **how: Any) -> dict[str, Any]:  # noqa: ANN401 (of `_update`)
    """Update a skill, and return what is said of it; one that cannot be written does not end the others."""
    try:
        return _update(root, skills, name, *rules, **how)
    except (WrongInput, StorageError, OSError) as error:
        told, _ = _state(root, skills, name, skills.edits(name))
        return {**told, "state": "refused", "reason": str(error)}


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
    root: Root, skills: SkillsFolder, name: str, rules: Sequence[str], settings: InstallSettings, *,
    dry_run: bool, any_publisher: bool, prefer: Side | None, project: Path | None,
) -> dict[str, Any]:  # fmt: skip
    installed, edits = skills.skills[name], skills.edits(name)
    told, row = _state(root, skills, name, edits)
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
    told["to"]["revision"] = prepared.installed.revision[:SHOWN]
    if edits:
        return _merge(root, skills, name, told, prepared, dry_run=dry_run, prefer=prefer, project=project)
    told |= prepared.told() | _differences(skills.path / name, installed, prepared)
    if not dry_run:
        skills.put(name, prepared.installed, prepared.contents, before=installed.doc_id)
    return {**told, "state": "outdated" if dry_run else "updated"}


def _merge(
    root: Root, skills: SkillsFolder, name: str, told: dict[str, Any], prepared: Installable, *,
    dry_run: bool, prefer: Side | None, project: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Merge what the corpus holds into a folder that was edited, and return what is said of it."""
    installed, folder = skills.skills[name], skills.path / name
    rejected = skills.rejected(name)
    try:
        seen, ours = digests_in(folder), contents_in(folder)
        base = _installed_contents(root, installed, ours)
    except (WrongInput, Withheld, UnknownDocument, StorageError) as error:
        edits = skills.edits(name)
        why = f"{said(edits)}; it cannot be merged ({error}); {how_to_replace(name)}"
        return {**told, "state": "edited", "reason": why}
    contents, conflicts = merged_files(base, ours, prepared.contents, prefer)
    if SKILL_FILE not in contents:  # without it the folder is no skill
        conflicts = [*conflicts, MergeConflict(SKILL_FILE, "it would be gone")]
    if conflicts:
        names = ", ".join(f"{one.path} ({one.why})" for one in conflicts[:5])
        why = f"{names}: {rejected} says more; --theirs or --ours decides" if not dry_run else names
        if not dry_run:
            put_file(rejected, _as_text(conflicts).encode())
        return {**told, "state": "conflict", "reason": why, "conflicts": as_dicts(conflicts)}
    told |= prepared.told() | {
        "files": _of_files(folder, {p: d for p, d in seen.items() if p in ours}, contents),
        "risks": _of_risks(installed, prepared),
        "licence": None,
    }
    if not dry_run:
        # The lock first: what is merged stays edited, so no later update could tell that it was not told of.
        known = None if project is None else read_skills_lock(project).get(name)
        if project is not None:
            change_skills_lock(project, {name: entry_of(prepared.installed, contents, project)})
        try:
            skills.put(name, prepared.installed, contents, before=installed.doc_id, onto=seen)
        except (WrongInput, StorageError, OSError):
            if project is not None:
                change_skills_lock(project, {name: known})
            raise
        rejected.unlink(missing_ok=True)
    return {**told, "state": "outdated" if dry_run else "merged"}


def _installed_contents(root: Root, installed: Installed, ours: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that were installed: what is unchanged in the folder, the rest of what is kept.

    Raises `WrongInput` if the bytes of one are not kept any more, and `UnknownDocument` or `Withheld` or
    `StorageError` as `past_edition`.
    """
    held = digests_of(ours)
    found = {p: ours[p] for p, digest in installed.files.items() if held.get(p) == digest}
    if found.keys() == installed.files.keys():
        return found
    known = [
        r for r in revisions_of(root, installed.doc_id, installed.source) if r.revision == installed.revision
    ]
    if not known:
        raise WrongInput("the version that was installed is not kept any more")
    edition = past_edition(root, known[-1])
    edition.require_text()
    was = {
        path: edition.read(blob["path"]) for path, blob in planned(edition.row).items() if path not in found
    }
    was |= {SKILL_FILE: edition.skill_file or b""} if SKILL_FILE not in found else {}
    digests = digests_of(was)
    for path in installed.files.keys() - found.keys():
        if digests.get(path) != installed.files[path]:
            raise WrongInput(f"what was installed of {path} is not kept any more")
        found[path] = was[path]
    return found


def _as_text(conflicts: Sequence[MergeConflict]) -> str:
    return "".join(f"{one.path}: {one.why}\n{one.marked or ''}\n" for one in conflicts)


def _require_name(name: str, prepared: Installable) -> None:
    if prepared.name != name:
        msg = f"it is called {prepared.name} by now: `skillery remove {name}` and install it again"
        raise WrongInput(msg)


def _differences(folder: Path, installed: Installed, prepared: Installable) -> dict[str, Any]:
    """Return what changes in a folder that nobody edited."""
    licences = [installed.licence, prepared.installed.licence]
    return {
        "files": _of_files(folder, installed.files, prepared.contents),
        "risks": _of_risks(installed, prepared),
        "licence": licences if licences[0] != licences[1] else None,
    }


def _of_risks(was: Installed, now: Installable) -> dict[str, Any]:
    gone = sorted({*was.risks}.difference(now.installed.risks))
    return {"added": new_risks(was, now.risks, now.installed.hits or ()), "gone": gone}


def _of_files(folder: Path, was: Mapping[str, str], new: Mapping[str, bytes]) -> list[dict[str, Any]]:
    def content(path: str, side: int) -> tuple[bytes, int]:
        held = new[path] if side else (folder / path).read_bytes()
        return held, len(held)

    return changed_files(was, digests_of(new), content)
