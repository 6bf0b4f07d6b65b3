"""Merges a skill three ways: what was installed, a person's edits, and what the corpus holds now."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Side = Literal["ours", "theirs"]
Files = Mapping[str, bytes]
_CLASH = "another file has its name, but for letter case, or is in place of its folder"
_SAME_LINES, _REMOVED, _BINARY = "both changed the same lines", "one side removed it", "both changed bytes"


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """A file that cannot be merged, why, and the merge with marks around what conflicts; None of no text."""

    path: str
    why: str
    marked: str | None = None


def merged_files(
    base: Files, ours: Files, theirs: Files, prefer: Side | None = None
) -> tuple[dict[str, bytes], list[MergeConflict]]:
    """Return the files that both sides' changes make, and what conflicts: of those files, a person's.

    A file that one side alone changed is that side's; one that both changed is merged by lines. `prefer`:
    whose is taken where both changed the same; then nothing conflicts.
    """
    found, conflicts = {}, []
    for path in sorted({*base, *ours, *theirs}):
        was, mine, new = base.get(path), ours.get(path), theirs.get(path)
        conflict = None
        if mine in (was, new):
            content = new
        elif new == was:
            content = mine
        else:
            content, conflict = _merged(path, was, mine, new, prefer)
        if conflict is not None:
            conflicts.append(conflict)
        if content is not None:
            found[path] = content
    for pair in sorted(_clashes(found), key=sorted):
        if any(pair <= side.keys() for side in (ours, theirs)):
            continue
        kept = theirs if prefer == "theirs" else ours
        for path in sorted(pair - kept.keys()):
            found.pop(path, None)
            conflicts += [] if prefer else [MergeConflict(path, _CLASH)]
    return found, conflicts


def _clashes(paths: Collection[str]) -> set[frozenset[str]]:
    """Return pairs of files that no folder can hold both: one's name is the other's, or lies above it."""
    named: dict[str, list[str]] = {}
    for path in paths:
        named.setdefault(path.casefold(), []).append(path)
    above = (
        (path, named.get("/".join(path.casefold().split("/")[:n]), ()))
        for path in sorted(paths)
        for n in range(1, path.count("/") + 2)
    )
    return {frozenset({path, other}) for path, others in above for other in others if other != path}


def _merged(
    path: str, was: bytes | None, mine: bytes | None, new: bytes | None, prefer: Side | None
) -> tuple[bytes | None, MergeConflict | None]:
    one = new if prefer == "theirs" else mine
    if mine is None or new is None:
        return one, None if prefer else MergeConflict(path, _REMOVED)
    if not all(map(_is_text, (was or b"", mine, new))):
        return one, None if prefer else MergeConflict(path, _BINARY)
    with tempfile.TemporaryDirectory(prefix="skillery-merge-") as folder:
        places = [Path(folder, side) for side in ("yours", "installed", "corpus")]
        for place, content in zip(places, (mine, was or b"", new), strict=True):
            place.write_bytes(content)
        option = [f"--{prefer}"] if prefer else []
        labels = [word for place in places for word in ("-L", place.name)]
        command = ["git", "merge-file", "-p", "--diff3", *option, *labels, *map(str, places)]
        done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout, None
    return mine, MergeConflict(path, _SAME_LINES, done.stdout.decode("utf-8", "replace"))


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content
