"""Directory source: reads all skills below the folder of `dir:PATH`; links are recorded, never followed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from storage.errors import SourceError
from storage.schemas import Dropped, RawDocument
from tasks.crawl.source.base import Source
from tasks.crawl.source.bundle import (
    DEFAULT_LIMITS,
    BundledSkill,
    Content,
    DocumentLimits,
    SourceEntry,
    consume,
    links_out,
    plan,
    read_skill,
)
from tasks.crawl.source.identity import repository_name
from tasks.crawl.source.project import PROJECT_BYTES, PROJECT_FILES, Project, project_of, without_copies

_SKIPPED = {".git", "node_modules"}
_PIECE = 1 << 16


class DirectorySource(Source):
    """The skills in a folder, in the order of their paths; the folder itself may be a link."""

    def __init__(self, path: str, *, limits: DocumentLimits = DEFAULT_LIMITS) -> None:
        self.spec, self._path, self._limits = f"dir:{path}", Path(path).expanduser(), limits

    def version(self) -> str:
        """Return the SHA-256 over path, size and modification time (ns) of everything below the folder."""
        root, digest = self._root(), hashlib.sha256()
        for entry in sorted(_walk(root), key=lambda e: e.path):
            try:
                stat = os.lstat(entry.key)
                state = f"{stat.st_size} {stat.st_mtime_ns}"
            except OSError:
                state = "gone"
            digest.update(f"{entry.path}\0{entry.kind}\0{entry.note}\0{state}\n".encode())
        return digest.hexdigest()

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield the folder's skills and the dropped entries; raise SourceError `missing` or `no-skill`."""
        root = self._root()
        repository = repository_name(root.as_uri())
        project = _project(root)
        rows = [*without_copies(plan(_walk(root), repository, self.spec), project.copies, self.spec)]
        for row in rows:
            url = "" if isinstance(row, Dropped) else (root / row.entry.folder).as_uri()
            yield read_skill(
                row, _read, self._limits, self.spec, repo=repository, url=url, repo_licence=project.licence
            )
        if not any(isinstance(row, BundledSkill) for row in rows):
            detail = "; ".join(filter(None, ("there is no SKILL.md in this folder", links_out(rows))))
            raise SourceError(self.spec, "no-skill", detail)

    def _root(self) -> Path:
        if not self._path.is_dir():
            raise SourceError(self.spec, "missing", "there is no such folder; check the path")
        return self._path.resolve()


def _project(root: Path) -> Project:
    found = {}
    for name in PROJECT_FILES:
        with contextlib.suppress(OSError):
            entry = SourceEntry(name, key=str(root / name), size=PROJECT_BYTES)
            found[name] = _read(entry, PROJECT_BYTES).head
    return project_of(found)


def _walk(root: Path) -> Iterator[SourceEntry]:
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as found:
                children = [child for child in found if child.name not in _SKIPPED]
        except OSError as error:
            why = error.strerror or str(error)
            yield SourceEntry(_printable(folder.relative_to(root)), "unreadable", note=why)
            continue
        for child in children:
            if child.is_dir(follow_symlinks=False):
                pending.append(Path(child.path))
            else:
                yield _entry(child, root)


def _entry(child: os.DirEntry[str], root: Path) -> SourceEntry:
    path = _printable(Path(child.path).relative_to(root))
    if child.is_symlink():
        return SourceEntry(path, "link", child.path, note=_target(Path(child.path), root))
    if not child.is_file(follow_symlinks=False):
        return SourceEntry(path, "unreadable", child.path, note="not a regular file")
    try:
        size = child.stat(follow_symlinks=False).st_size
    except OSError:  # it is gone, which reading it will say
        size = 0
    return SourceEntry(path, "file", child.path, size=size)


def _target(link: Path, root: Path) -> str:
    """Return where a link leads: relative to its own folder inside `root`, else the whole path."""
    target = os.path.normpath(link.parent / os.readlink(link))
    return _printable(os.path.relpath(target, link.parent) if Path(target).is_relative_to(root) else target)


def _printable(path: str | Path) -> str:
    """Return a path as valid Unicode; names on disk are bytes and need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def _read(entry: SourceEntry, keep: int) -> Content:
    # Since it was listed, a file may have become a link or a pipe, or have grown without an end.
    descriptor = os.open(entry.key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        content = consume(_pieces(file, entry.size), keep)
        if file.read(1):
            raise OSError("it grew while it was read")
    return content


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece
