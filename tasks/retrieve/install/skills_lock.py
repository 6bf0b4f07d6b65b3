"""The skills lock of a project, `skills-lock.json` of version 1, which clients of other makers share."""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage.errors import StorageError
from storage.folder import delete_path, put_file
from tasks.crawl.source.identity import parse_github_url
from tasks.retrieve.install.lock import Installed, is_folder_name

SKILLS_LOCK = "skills-lock.json"
WELL_KNOWN = "well-known"
_VERSION = 1
Entry = dict[str, Any]
# The order of ASCII in the collation that JavaScript compares texts by; letters and digits follow.
_PUNCTUATION = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"


def folder_hash(files: Mapping[str, bytes]) -> str:
    """Return the hash by which that lock knows the files of a skill, by their paths."""
    found = hashlib.sha256()
    for path in sorted(files, key=_collated):
        found.update(path.encode("utf-8", "surrogateescape") + files[path])
    return found.hexdigest()


def _collated(path: str) -> tuple[list[int], str, list[bool]]:
    """Return what orders paths as the lock's other writers do: letters, then accents, then letter case."""
    marked, cased = (unicodedata.normalize("NFD", text) for text in (path.casefold(), path))
    plain = [c for c in marked if not unicodedata.combining(c)]
    letters = [_PUNCTUATION.find(c) if c in _PUNCTUATION else 100 + ord(c) for c in plain]
    return letters, marked, [c.isupper() for c in cased]


def read_skills_lock(project: Path) -> dict[str, Entry]:
    """Return the entries of a project's lock by the names of folders; none where there is no lock.

    Raises `StorageError` if it cannot be read, or names what is no folder.
    """
    path = project / SKILLS_LOCK
    try:
        held = json.loads(path.read_bytes())
        found = held["skills"]
        wrong = [n for n, e in found.items() if not (is_folder_name(n) and isinstance(e, dict))]
        usable = int(held["version"]) == _VERSION and not wrong
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} cannot be read ({type(error).__name__}: {error}): restore it, or delete it"
        raise StorageError(msg) from error
    if not usable:
        said = f"names {wrong[0]!r}, which is no skill" if wrong else f"has version {held['version']}"
        raise StorageError(f"{path} {said}: only version {_VERSION} is read; restore it, or delete it")
    return dict(found)


def change_skills_lock(project: Path, changes: Mapping[str, Entry | None]) -> None:
    """Put entries into a project's lock, and take those away whose value is None; an empty lock goes.

    Raises `StorageError` if it cannot be read.
    """
    before = read_skills_lock(project)
    after = {name: entry for name, entry in {**before, **changes}.items() if entry is not None}
    if after == before:
        return
    path = project / SKILLS_LOCK
    held = {"version": _VERSION, **(json.loads(path.read_bytes()) if path.exists() else {})}
    if not after and held.keys() <= {"version", "skills"}:
        delete_path(path)
        return
    held["skills"] = dict(sorted(after.items()))  # what else other clients keep there stays
    put_file(path, f"{json.dumps(held, indent=2, ensure_ascii=False)}\n".encode())


def entry_of(installed: Installed, files: Mapping[str, bytes], project: Path) -> Entry | None:
    """Return what a project's lock says of a skill; None if its source is none that clients can read."""
    kind, _, address = installed.source.partition(":")
    told: Entry | None = None
    github = parse_github_url(installed.url)
    folder = installed.doc_id[len(installed.repo or "") :].strip("/")
    path = {"skillPath": f"{folder}/SKILL.md" if folder else "SKILL.md"}
    commit = {"ref": installed.commit} if installed.commit else {}
    if kind == WELL_KNOWN:
        told = {
            "source": (urlsplit(address).hostname or "unknown").removeprefix("www."), "sourceUrl": address,
            "sourceType": WELL_KNOWN,
        }  # fmt: skip
    elif github is not None and installed.repo:
        told = {"source": github.repository, **commit, "sourceType": "github", **path}
    elif installed.source.startswith("git+") and installed.repo:
        url = installed.source.removeprefix("git+")
        told = {"source": url, "sourceUrl": url, **commit, "sourceType": "git", **path}
    elif kind == "dir":
        near = os.path.relpath(address, project)
        told = {"source": near if near.startswith(".") else f"./{near}", "sourceType": "local", **path}
    if told is None:
        return None
    digest = {"wellKnownDigest": installed.artifact} if installed.artifact else {}
    return {**told, "computedHash": folder_hash(files), **digest}
