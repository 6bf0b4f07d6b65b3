"""A skill's name, from its front matter or else its folder, and findings against the specification."""

from __future__ import annotations

import re
import unicodedata

from storage.schemas import Finding
from tasks.refine.licences.resolve import skill_folder
from tasks.refine.text.canonical import canonical
from tasks.refine.text.findings import finding
from tasks.refine.text.strict_yaml import Value

MAX_NAME_CHARS = 64
_ASCII_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def folder_of(doc_id: str, path: str | None) -> str:
    """Return the name of the folder that holds the skill: the last part of its path, else of its id."""
    if folder := skill_folder(path):
        return folder.rpartition("/")[2]
    # Some sources join the parts of an id by double hyphens, which no valid name holds.
    return doc_id.rstrip("/").rpartition("/")[2].split("--")[-1] or doc_id


def _is_unicode_name(name: str) -> bool:
    """Tell whether the specification's reference validator accepts a name: letters of any script, hyphens."""
    normal = unicodedata.normalize("NFKC", name)
    return normal == normal.lower() and all(part.isalnum() for part in normal.split("-"))


def _judged(name: str, folder: str) -> tuple[Finding, ...]:
    found = []
    if len(name) > MAX_NAME_CHARS:
        found.append(finding("name.too-long", f"{len(name)} characters, at most {MAX_NAME_CHARS}"))
    if not _ASCII_NAME.fullmatch(name):
        found.append(finding("name.not-ascii" if _is_unicode_name(name) else "name.pattern", name))
    if unicodedata.normalize("NFKC", name) != unicodedata.normalize("NFKC", folder):
        found.append(finding("name.folder", f"{name!r} in folder {folder!r}"))
    return tuple(found)


def name_of(value: Value | None, folder: str) -> tuple[str, bool, tuple[Finding, ...]]:
    """Return a skill's name, whether it was inferred from the folder, and findings on it.

    A stated name is judged by the specification's rules but kept as written, on one line; anything but text
    counts as missing.
    """
    name = " ".join(canonical(value)[0].split()) if isinstance(value, str) else ""
    if name:
        return name, False, _judged(name, folder)
    return " ".join(canonical(folder)[0].split()) or folder, True, (finding("name.missing"),)
