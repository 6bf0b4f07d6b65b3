"""Hand edits: where the files of an installed folder differ from what was written there."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_NO_FILE = "no regular file"
# What running a script, or opening a folder on a desktop, leaves there is no edit.
_GENERATED = re.compile(r"(?:.*/)?(?:__pycache__/.*|\.DS_Store)")


@dataclass(frozen=True, slots=True)
class HandEdit:
    """One difference of a folder from what was written; a link in place of a file is an edited one."""

    path: str
    change: Literal["edited", "added", "missing"]


def digests_in(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder, by its path; empty if it is none, or a link.

    No link is followed: a link, or what else is neither a file nor a folder, has a text that is no digest.
    """
    found: dict[str, str] = {}
    if folder.is_symlink():
        return found
    for above, folders, files in os.walk(folder):
        links = [name for name in folders if Path(above, name).is_symlink()]
        for path in (Path(above, name) for name in (*links, *files)):
            found[path.relative_to(folder).as_posix()] = _digest(path)
    return found


def _digest(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return _NO_FILE
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hand_edits(folder: Path, files: Mapping[str, str]) -> list[HandEdit]:
    """Return the differences between a folder and the digests of what was written there, by path.

    `__pycache__` and `.DS_Store`, which programs leave, are no edits.

    Args:
        folder: A skill's folder; where there is none, every file is missing.
        files: The digest of each file that was written, by path.
    """
    found = digests_in(folder)
    edits = [HandEdit(path, "missing") for path in files if path not in found]
    edits += [HandEdit(p, "edited") for p, digest in files.items() if found.get(p, digest) != digest]
    edits += [HandEdit(p, "added") for p in found if p not in files and not _GENERATED.fullmatch(p)]
    return sorted(edits, key=lambda edit: edit.path)


def said(edits: Iterable[HandEdit]) -> str:
    """Return edits in a line, at most five of them by name."""
    each = [f"{edit.path} ({edit.change})" for edit in edits]
    more = f" and {len(each) - 5:,} more" if len(each) > 5 else ""
    return ", ".join(each[:5]) + more
