"""Finds the skills in a listing of paths, each with its bundle: the files that belong to it."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from storage.schemas import Dropped
from tasks.crawl.source.identity import doc_key, make_doc_id

_LICENCE = re.compile(r"licen[cs]e|copying", re.IGNORECASE)
# Every folder above an entry is looked up: without limits, one path of 64 KB has 2 GB of them.
_LONGEST_PATH, _DEEPEST = 4_096, 100  # characters, folders


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One path of a source."""

    path: str  # relative to the source's root, with `/`
    # `unreadable` is no file, folder or link, or access to it is denied.
    kind: Literal["file", "link", "submodule", "unreadable"] = "file"
    key: str = ""  # the id of a git object, or the path as the file system spells it
    note: str = ""  # the target of a link, or why the entry is unreadable

    @property
    def folder(self) -> str:
        """The folder it lies in; empty for the source's root."""
        return posixpath.dirname(self.path)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return posixpath.basename(self.path)

    @property
    def names_skill(self) -> bool:
        """Whether it is called SKILL.md, in any letter case."""
        return self.name.lower() == "skill.md"


@dataclass(frozen=True, slots=True)
class BundledSkill:
    """A SKILL.md that will be read, with the files that belong to it."""

    doc_id: str
    entry: SourceEntry  # the SKILL.md
    files: tuple[SourceEntry, ...]  # below its folder, without those of nested skills
    odd: tuple[SourceEntry, ...]  # links and unreadable entries below its folder
    licences: tuple[SourceEntry, ...]  # of its folder, then of each folder above it


def plan(entries: Iterable[SourceEntry], repository: str, source: str) -> list[BundledSkill | Dropped]:
    """Return the skills to read and dropped entries in the order of paths; ids begin with `repository`."""
    listing = _Listing(sorted(map(checked, entries), key=lambda e: e.path))
    survivors: dict[str, str] = {}
    rows: list[BundledSkill | Dropped] = []
    for entry in listing.entries:
        doc_id = make_doc_id(repository, entry.folder if entry.names_skill else entry.path)
        if entry.names_skill and entry.kind == "file":
            if survivor := survivors.get(doc_key(doc_id)):
                rows.append(Dropped(doc_id, source, "duplicate_id", entry.path, lost_to=survivor))
            else:
                survivors[doc_key(doc_id)] = doc_id
                rows.append(listing.skill(doc_id, entry))
        elif detail := listing.why_not_taken(entry):
            reason = "symlink" if entry.kind == "link" else entry.kind
            rows.append(Dropped(doc_id, source, reason, detail))
    return rows


def checked(entry: SourceEntry) -> SourceEntry:
    """Return an entry with a plain path; any other is `unreadable`, under a path that can be looked up."""
    parts = entry.path.split("/")
    if len(entry.path) > _LONGEST_PATH or len(parts) > _DEEPEST:
        note = f"its path has {len(entry.path):,} characters and {len(parts):,} parts"
        return SourceEntry(entry.path[:200].strip("/"), "unreadable", entry.key, note)
    if {"", ".", ".."}.isdisjoint(parts):
        return entry
    plain = "/".join(part for part in parts if part not in {"", ".", ".."})
    return SourceEntry(plain, "unreadable", entry.key, f"{entry.path!r} is no plain path")


class _Listing:
    """The sorted entries of a source, looked up by folder."""

    def __init__(self, entries: list[SourceEntry]) -> None:
        self.entries = entries
        self._skill_folders = {e.folder for e in entries if e.names_skill and e.kind == "file"}
        self._folders = {folder for e in entries for folder in _upwards(e.folder)}
        self._licences: dict[str, list[SourceEntry]] = defaultdict(list)
        self._members: dict[str | None, list[SourceEntry]] = defaultdict(list)
        for entry in entries:
            self._members[self._skill_folder(entry)].append(entry)
            if entry.kind == "file" and _LICENCE.match(entry.name):
                self._licences[entry.folder].append(entry)

    def skill(self, doc_id: str, entry: SourceEntry) -> BundledSkill:
        members = [e for e in self._members[entry.folder] if not e.names_skill]
        files = tuple(e for e in members if e.kind == "file")
        odd = tuple(e for e in members if e.kind in {"link", "unreadable"})
        licences = tuple(e for folder in _upwards(entry.folder) for e in self._licences[folder])
        return BundledSkill(doc_id, entry, files, odd, licences)

    def why_not_taken(self, entry: SourceEntry) -> str:
        """Return the detail of an entry that may hide a skill; empty if it cannot."""
        if entry.kind == "submodule":
            return entry.path
        if entry.kind == "unreadable":
            return f"{entry.path}: {entry.note}"
        if entry.kind != "link":
            return ""
        target = posixpath.normpath(posixpath.join(entry.folder, entry.note))
        outside = target.startswith(("/", ".."))
        hides = entry.names_skill or target == "." or target in self._folders
        # A link out of the source, inside a skill's folder, is a finding on that skill instead.
        if hides or (outside and self._skill_folder(entry) is None):
            return f"{entry.path} -> {entry.note}"
        return ""

    def _skill_folder(self, entry: SourceEntry) -> str | None:
        return next((f for f in _upwards(entry.folder) if f in self._skill_folders), None)


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and every folder above it, the root (empty) last."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""
