"""Installing skills into the folder of an agent, and removing them again; how they are refused is set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from storage.errors import UnknownDocument, WrongInput
from storage.root import Root
from storage.schemas import Severity
from storage.state import documents_table
from tasks.crawl.source.identity import doc_key, shown_spec
from tasks.crawl.source.lookup import meant, suggestion
from tasks.refine.risks.rules import GROUPS
from tasks.retrieve.install.contents import Installable, is_same_publisher, prepare, require_rules
from tasks.retrieve.install.lock import LOCK_FILE, Installed
from tasks.retrieve.install.skills_folder import SkillsFolder, open_skills_folder, said
from tasks.retrieve.install.skills_lock import change_skills_lock, entry_of
from tasks.retrieve.install.verification import skill_files
from tasks.retrieve.revisions.edition import Edition
from tasks.retrieve.revisions.history import read_revision, revisions_of
from tasks.retrieve.revisions.show import open_edition

_CLASSES = (*get_args(Severity), *GROUPS)


class InstallSettings(BaseSettings):
    """What is refused: a JSON list, or words with commas between them."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_INSTALL_", extra="ignore", frozen=True)

    refuse: Annotated[list[str], NoDecode] = Field(
        ["error"],
        description="Severities (error, warning, info) and groups (such as remote) of risks that `install` "
        "refuses; empty: none.",
    )

    @field_validator("refuse", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        words = json.loads(given) if given.lstrip().startswith("[") else given.split(",")
        return [str(word).strip() for word in words if str(word).strip()]

    @field_validator("refuse")
    @classmethod
    def _known(cls, given: list[str]) -> list[str]:
        if unknown := [word for word in given if word not in _CLASSES]:
            raise ValueError(f"{unknown[0]!r} is no class of risks: choose among {', '.join(_CLASSES)}")
        return given


SHOWN = 12  # hexadecimal digits of a revision
_ID = "id:"  # before an id that is also a name


def install_skills(
    root: Root, folder: Path, texts: Sequence[str], revision: str | None, accepted: Sequence[str],
    settings: InstallSettings, *, any_publisher: bool = False, called: str | None = None,
    project: Path | None = None, brought: Iterable[Edition] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Install skills into a folder; all of them are checked before the first is written.

    A text is an id, the end of one, or a name, with `id:` before an id that is also another skill's name; it
    is not looked up where a registry `brought` the skills. The others are the options of `skillery install`:
    `accepted` are rules of risks, `called` names the folder of the one skill, `project` is where
    `skills-lock.json` lies, None: none is kept. Raises `UnknownDocument` or `Withheld` as `show`;
    `WrongInput` if one is refused (`prepare`), two may be meant, or its folder is not free; `Locked` if
    another process installs there; `StorageError` if a file of the root, or the lock, cannot be read.
    """
    rules = require_rules(accepted)
    meant_ones = (_meant(root, text, revision) for text in dict.fromkeys(texts))
    editions = meant_ones if brought is None else brought
    made = (prepare(edition, settings.refuse, rules, called=called) for edition in editions)
    found = {prepared.installed.doc_id: prepared for prepared in made}
    _require_names(list(found.values()))
    with open_skills_folder(folder, create=True) as skills:
        for prepared in found.values():
            skills.require_free(prepared.name, prepared.installed.doc_id)
            if not any_publisher and (held := skills.skills.get(prepared.name)):
                require_publisher(root, held, prepared.row)
        told = [_put(skills, prepared) for prepared in found.values()]
        lock_shared(project, skills, [skill["name"] for skill in told])
        return {**told_of(skills), "skills": told}


def _meant(root: Root, text: str, revision: str | None) -> Edition:
    """Return the edition of the document that a text means; raise `WrongInput` if it may be two.

    A whole id is certain, but one of a single part may be anybody's choice, and another skill's name.
    """
    wanted = text.removeprefix(_ID)
    edition, _ = open_edition(root, wanted, revision)
    key = doc_key(text.strip().strip("/"))
    if wanted == text and "/" not in key:
        names = documents_table(root).read(columns=["doc_id", "name"]).iter_rows()
        if named := sorted(i for i, n in names if doc_key(n) == key and i != edition.row["doc_id"]):
            said = f"it is an id, of {edition.row['doc_id']}, and the name of {', '.join(named[:5])}"
            raise WrongInput(f"{text!r} may mean several: {said}; give a whole id, {_ID}{text} for the first")
    return edition


def require_publisher(root: Root, was: Installed, now: Mapping[str, Any]) -> None:
    """Raise `WrongInput` if who published a row of DOCUMENTS is not who published what was installed."""
    if was.repo is None and was.repo_id is None:  # an older lock: what was fetched then may tell
        try:
            known = revisions_of(root, was.doc_id, was.source)
        except UnknownDocument:
            known = []
        if same := [one for one in known if one.revision == was.revision]:
            raw = read_revision(root, same[-1])
            was = replace(was, repo=raw.repo, repo_id=raw.repo_id)
    if not is_same_publisher(was, now):
        whose = [_publisher(one) for one in (was.publisher, now)]
        msg = f"{was.doc_id} was installed from {whose[0]}, and {now['doc_id']} is of {whose[1]} by now"
        raise WrongInput(f"{msg}: read it; --accept-publisher takes it all the same")


def _publisher(row: Mapping[str, Any]) -> str:
    of = f"repository {row['repo']}" if row["repo"] else "a repository that is not known"
    return f"{shown_spec(row['source'])} ({of}{', id ' + row['repo_id'] if row['repo_id'] else ''})"


def remove_skills(
    folder: Path, texts: Sequence[str], *, edited: bool, project: Path | None = None
) -> dict[str, Any]:
    """Remove installed skills, `edited` ones too where that is said; all are checked before the first goes.

    Raises `WrongInput` if one is not installed there, or was edited, and `Locked` or `StorageError` as
    `install_skills`.
    """
    with open_skills_folder(folder) as skills:
        names = list(dict.fromkeys(installed_name(skills, text) for text in texts))
        edits = {name: skills.edits(name) for name in names}
        for name in names:
            # A folder that is gone holds nothing that could be lost.
            if edits[name] and (folder / name).exists() and not edited:
                msg = f"{folder / name} was edited by hand, and stays: {said(edits[name])}; --yes removes it"
                raise WrongInput(msg)
        told = [{"name": n, "doc_id": skills.skills[n].doc_id, "edited": as_dicts(edits[n])} for n in names]
        for name in names:
            skills.remove(name)
        lock_shared(project, skills, names)
        return {**told_of(skills), "skills": told}


def lock_shared(project: Path | None, skills: SkillsFolder, names: Iterable[str]) -> None:
    """Let the lock that a project shares with other clients say what the folders of these names hold."""
    if project is not None:
        held = {name: (skills.skills.get(name), skill_files(skills.path / name)) for name in names}
        entries = {n: None if one is None else entry_of(one, f, project) for n, (one, f) in held.items()}
        change_skills_lock(project, entries)


def told_of(skills: SkillsFolder) -> dict[str, Any]:
    """Return where skills are installed, and what was mended there, as JSON takes it."""
    return {
        "folder": str(skills.path), "lock": str(skills.path / LOCK_FILE), "mended": skills.mended,
    }  # fmt: skip


def as_dicts(edits: Sequence[Any]) -> list[dict[str, Any]]:
    """Return dataclasses as JSON takes them."""
    return [asdict(edit) for edit in edits]


def installed_name(skills: SkillsFolder, text: str) -> str:
    """Return the folder of the one installed skill that a text means; raise `WrongInput` if none is."""
    by_id = {installed.doc_id: name for name, installed in skills.skills.items()}
    found = meant(text, by_id)
    exact = {by_id[i]: i for i in found if doc_key(i) == doc_key(text)}
    exact |= {n: one.doc_id for n, one in skills.skills.items() if doc_key(n) == doc_key(text)}
    named = [*exact] or [by_id[i] for i in found]
    if len(named) != 1:
        found = [*exact.values()] or found
        raise WrongInput(f"{text!r} is not installed in {skills.path}{suggestion(text, found, by_id)}")
    return named[0]


def _require_names(found: Sequence[Installable]) -> None:
    often = Counter(doc_key(prepared.name) for prepared in found)
    if same := [p for p in found if often[doc_key(p.name)] > 1]:
        ids = ", ".join(p.installed.doc_id for p in same)
        msg = f"{ids} are all called {same[0].name}, of which a folder holds one: name others by --as"
        raise WrongInput(msg)


def _put(skills: SkillsFolder, prepared: Installable) -> dict[str, Any]:
    name, installed = prepared.name, prepared.installed
    held = skills.skills.get(name)
    if held == installed and (skills.path / name).exists():
        state = "unchanged"
    else:
        state = "installed" if held is None else "updated"
        skills.put(name, installed, prepared.contents)
    return {
        "name": name, "state": state, "path": str(skills.path / name),
        **asdict(installed), "revision": installed.revision[:SHOWN],
        **prepared.told(), "risks": prepared.risks,
    }  # fmt: skip
