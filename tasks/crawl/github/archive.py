"""A zip archive of a repository, read where it lies: nothing is unpacked to disk and no link is followed."""

from __future__ import annotations

import copy
import posixpath
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal
from zipfile import BadZipFile, ZipFile, ZipInfo

from tasks.crawl.github.archive_limits import (
    ArchiveLimits,
    ArchiveRefused,
    check_directory,
    check_entries,
    entry_name,
    has_control,
    shown,
)
from tasks.crawl.source.bundle import SourceEntry

_COMMIT = re.compile(rb"[0-9a-f]{40}", re.IGNORECASE)
_PIECE = 1 << 16
_LINK_BYTES = 4_096
# Raised by zipfile and zlib for bytes that are not what the directory promised.
_DAMAGE = (BadZipFile, EOFError, zlib.error, struct.error, NotImplementedError, RuntimeError, ValueError)


class Archive:
    """A repository's files in a zip archive, for a `with` statement; memory stays below about 100 MB.

    `root` is the folder that all entries lie in, empty if there are none; `commit` is the commit that git
    wrote into the archive's comment, or None.

    Raises:
        ArchiveRefused: The archive is damaged or exceeds `limits`.
        OSError: There is no such file.
    """

    def __init__(self, path: Path, limits: ArchiveLimits = ArchiveLimits()) -> None:  # noqa: B008 - frozen
        with path.open("rb") as file:
            check_directory(file, limits)
        try:
            self._zip = ZipFile(path)
        except _DAMAGE as error:
            raise ArchiveRefused("archive-damaged", f"its directory is broken: {error}") from None
        self._left = limits.unpacked_bytes
        try:
            self.root = check_entries(self._zip.infolist(), limits)
        except ArchiveRefused:
            self._zip.close()
            raise
        commit = _COMMIT.fullmatch(self._zip.comment)
        self.commit = commit[0].decode().lower() if commit else None

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def entries(self) -> list[SourceEntry]:
        """Return every file, link and submodule below the root, in the archive's order.

        An entry's key is its name in the archive; a link's note is its target. Other kinds of files, and
        names with a control character, are `unreadable`. Raises as `read`, since links are read.
        """
        infos = self._zip.infolist()
        parents = {posixpath.dirname(info.filename.rstrip("/")) for info in infos}
        entries = [self._entry(info) for info in infos if info.filename.rstrip("/") not in parents]
        return [entry for entry in entries if entry is not None]

    def read(self, entry: SourceEntry) -> Iterator[bytes]:
        """Yield a file's bytes in pieces of at most 64 KB.

        Raises:
            OSError: It is damaged, or unpacks to more or fewer bytes than declared.
            ArchiveRefused: `archive-size`: more was unpacked in all than `limits.unpacked_bytes`.
        """
        info = copy.copy(self._zip.getinfo(entry.key))
        declared, unpacked = info.file_size, 0
        info.file_size += 1  # zipfile stops at the declared size, and would hide that the file goes on
        try:
            with self._zip.open(info) as file:
                while piece := file.read(_PIECE):
                    self._left -= len(piece)
                    if self._left < 0:
                        detail = f"{shown(entry.path)}: too much has been unpacked in all"
                        raise ArchiveRefused("archive-size", detail)
                    unpacked += len(piece)
                    if unpacked > declared:
                        break
                    yield piece
        except _DAMAGE as error:
            raise OSError(f"it is damaged in the archive: {error}") from error
        if unpacked != declared:
            raise OSError(f"it does not unpack to the {declared:,} bytes that the archive says")

    def _entry(self, info: ZipInfo) -> SourceEntry | None:
        """Return a member as an entry; None for an empty folder."""
        name = entry_name(info)
        path = name[len(self.root) + 1 :].removesuffix("/")
        if has_control(path):
            printable = "".join("\ufffd" if has_control(character) else character for character in path)
            return SourceEntry(printable, "unreadable", note="its name has a control character")
        if name.endswith("/"):
            # Git keeps no empty folders: what looks like one in its archives is a submodule.
            return SourceEntry(path, "submodule") if self.commit and path else None
        kind = _kind(info)
        if kind == "link":
            return self._link(SourceEntry(path, "link", info.filename), info.file_size)
        note = "not a regular file" if kind == "unreadable" else ""
        return SourceEntry(path, kind, info.filename, note)

    def _link(self, link: SourceEntry, size: int) -> SourceEntry:
        if size > _LINK_BYTES:
            return replace(link, kind="unreadable", note=f"a link of {size:,} bytes leads nowhere")
        try:
            target = b"".join(self.read(link))
        except OSError as error:
            return replace(link, kind="unreadable", note=str(error))
        return replace(link, note=target.decode("utf-8", errors="replace"))


def _kind(info: ZipInfo) -> Literal["file", "link", "unreadable"]:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_IFMT(mode) in {0, stat.S_IFREG} else "unreadable"
