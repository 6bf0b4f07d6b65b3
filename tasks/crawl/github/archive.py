"""A zip archive of a repository, read where it lies within limits: nothing is unpacked to disk."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import re
import stat
import struct
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from storage.errors import TerminalError
from tasks.crawl.source.bundle import LINK_BYTES, Content, SourceEntry, consume
from tasks.models.visible import visible

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_HEADER_BYTES = 46  # of an entry of the directory, followed by three fields of the lengths at byte 28
_TAIL = _END.size + 0xFFFF  # an end record with the longest comment
_ENCRYPTED, _PATCH, _UTF8 = 0x1 | 0x40, 0x20, 0x800
_PIECE = 1 << 16
# Raised by zipfile and zlib for bytes that are not what the directory promised.
_DAMAGE = (BadZipFile, EOFError, zlib.error, struct.error, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The largest archive that is read."""

    files: int = 50_000  # entries, with folders; each costs about 1 KB of memory
    directory_bytes: int = 10_000_000  # of the directory that lists the entries
    unpacked_bytes: int = 1_000_000_000  # of all entries, both as declared and as really unpacked


class ArchiveRefused(TerminalError):
    """An archive is not read; `detail` names the entry.

    Reasons: `archive-damaged`, `archive-files`, `archive-size`, `archive-path`, `archive-roots`,
    `archive-duplicate`, `archive-encrypted`, `archive-compression`.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"the archive is refused: {detail}")
        self.reason, self.detail = reason, detail


def check_directory(file: BinaryIO, limits: ArchiveLimits) -> None:
    """Check the directory of a zip file, at most `limits.directory_bytes` of it in memory.

    A file that passes can be read in one way only: no bytes stand before its first entry, and its directory
    ends where the end record begins.

    Raises:
        ArchiveRefused: `archive-damaged` (no zip file, or cut short) or `archive-files`.
    """
    start, size = _directory_span(file)
    if size > limits.directory_bytes:
        detail = f"its directory has {size:,} bytes, more than {limits.directory_bytes:,}"
        raise ArchiveRefused("archive-files", detail)
    file.seek(start)
    directory = file.read(size)
    at = entries = 0
    while at < size:
        header = directory[at : at + _HEADER_BYTES]
        if len(header) < _HEADER_BYTES or not header.startswith(b"PK\1\2"):
            raise _damaged("its directory is broken")
        at += _HEADER_BYTES + sum(struct.unpack_from("<3H", header, 28))
        entries += 1
        if entries > limits.files:
            raise ArchiveRefused("archive-files", f"it has more entries than the limit of {limits.files:,}")
    if at != size:
        raise _damaged("its directory is broken")


def _directory_span(file: BinaryIO) -> tuple[int, int]:
    """Return the directory's offset and size from the end record, or from the 64-bit one if there is one."""
    end = _end_record(file)
    size, offset = _read(file, _END, end)[5:7]
    if end >= _LOCATOR.size + _END64.size and _read(file, _LOCATOR, end - _LOCATOR.size)[0] == b"PK\6\7":
        end -= _LOCATOR.size + _END64.size
        record = _read(file, _END64, end)
        if record[0] != b"PK\6\6":
            raise _damaged("its end record is broken")
        size, offset = record[8:10]
    if offset + size != end:
        raise _damaged("its directory does not lie where its end says")
    return offset, size


def _end_record(file: BinaryIO) -> int:
    length = file.seek(0, 2)
    start = max(0, length - _TAIL)
    file.seek(start)
    tail = file.read(_TAIL)
    # Searched as zipfile does: at the very end first, since a comment may hold the same four bytes.
    bare = tail[-_END.size :]
    found = len(tail) - _END.size if bare[:4] == b"PK\5\6" and bare[-2:] == b"\0\0" else tail.rfind(b"PK\5\6")
    if found < 0 or len(tail) - found < _END.size:
        raise _damaged("it is no zip file, or was cut short")
    if _END.unpack_from(tail, found)[7] != len(tail) - found - _END.size:
        raise _damaged("its comment is cut short or followed by other bytes")
    return start + found


def _read(file: BinaryIO, record: struct.Struct, at: int) -> tuple[Any, ...]:
    file.seek(at)
    return record.unpack(file.read(record.size))


def _damaged(detail: str) -> ArchiveRefused:
    return ArchiveRefused("archive-damaged", detail)


def check_entries(entries: Iterable[ZipInfo], limits: ArchiveLimits, *, rooted: bool = True) -> str:
    """Return the folder that all entries lie in (empty: none, or not `rooted`), or raise ArchiveRefused."""
    root, unpacked = "", 0
    names: Counter[str] = Counter()
    for entry in entries:
        name = entry_name(entry)
        check_name(name)
        _check_packing(entry, name)
        first, slash, _ = name.partition("/") if rooted else ("", "/", "")
        if not slash or first != (root or first):
            raise ArchiveRefused("archive-roots", f"{shown(name)} lies beside its one root folder")
        root = first
        unpacked += entry.file_size
        if unpacked > limits.unpacked_bytes:
            limit = f"the limit of {limits.unpacked_bytes:,} bytes unpacked"
            raise ArchiveRefused("archive-size", f"{shown(name)} brings it over {limit}")
        names[entry.filename.rstrip("/")] += 1
    if repeated := next((name for name, times in names.items() if times > 1), None):
        raise ArchiveRefused("archive-duplicate", f"{shown(repeated)} is in it twice")
    return root


def entry_name(entry: ZipInfo) -> str:
    """Return an entry's name, read as UTF-8: git writes UTF-8 without setting the flag."""
    if entry.flag_bits & _UTF8:
        return entry.orig_filename
    return entry.orig_filename.encode("cp437").decode("utf-8", errors="replace")


def shown(name: str) -> str:
    """Return a name for messages: visible, and cut to 200 characters."""
    text = visible(name)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-97:]}"


def has_control(name: str) -> bool:
    """Return whether a name holds control characters, as macOS's folder icons do."""
    return any(unicodedata.category(character) == "Cc" for character in name)


def check_name(name: str) -> None:
    """Raise ArchiveRefused unless the name of an entry is a plain path."""
    parts = name.removesuffix("/").split("/")
    if "\0" in name or "\\" in name or re.match(r"[A-Za-z]:", name) or not {"", ".", ".."}.isdisjoint(parts):
        raise ArchiveRefused("archive-path", f"{shown(name)} is no plain path below its root folder")


def _check_packing(entry: ZipInfo, name: str) -> None:
    if entry.flag_bits & _ENCRYPTED:
        raise ArchiveRefused("archive-encrypted", f"{shown(name)} is encrypted")
    if entry.compress_type not in {ZIP_STORED, ZIP_DEFLATED} or entry.flag_bits & _PATCH:
        raise ArchiveRefused("archive-compression", f"{shown(name)} is neither stored nor deflated")


def object_id(pieces: Iterable[bytes], size: int, like: str) -> str:
    """Return git's id of a blob, by the hash that the id `like` is of."""
    digest = hashlib.new("sha1" if len(like) == 40 else "sha256", b"blob %d\0" % size, usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


class Archive:
    """The files in a zip archive, for a `with` statement; memory stays below about 100 MB.

    `root` is the folder that all entries lie in, empty if there are none, or if they need not lie in one. An
    archive that is damaged or exceeds `limits` raises ArchiveRefused.
    """

    def __init__(self, path: Path, limits: ArchiveLimits = ArchiveLimits(), *, rooted: bool = True) -> None:
        with path.open("rb") as file:
            check_directory(file, limits)
        try:
            self._zip = ZipFile(path)
        except _DAMAGE as error:
            raise ArchiveRefused("archive-damaged", f"its directory is broken: {error}") from None
        self._left = limits.unpacked_bytes
        try:
            self.root = check_entries(self._zip.infolist(), limits, rooted=rooted)
        except ArchiveRefused:
            self._zip.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def entries(self) -> list[SourceEntry]:
        """Return every file and link below the root, in the archive's order.

        An entry's key is its name in the archive; a link's note is its target. Other kinds of files, and
        names with a control character, are `unreadable`. Raises as `read`, since links are read.
        """
        return [self._entry(info) for info in self._zip.infolist() if not info.is_dir()]

    def read(self, entry: SourceEntry, keep: int) -> Content:
        """Read a file; raise OSError if it is damaged, or unpacks to more or fewer bytes than declared.

        ArchiveRefused `archive-size`: more was unpacked in all than `limits.unpacked_bytes`.
        """
        return consume(self._pieces(entry), keep)

    def is_object(self, entry: SourceEntry, key: str) -> bool:
        """Tell whether a file is the blob with that id of git; one that is damaged is not."""
        with contextlib.suppress(OSError):
            return object_id(self._pieces(entry), entry.size, key) == key
        return False

    def _pieces(self, entry: SourceEntry) -> Iterator[bytes]:
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

    def _entry(self, info: ZipInfo) -> SourceEntry:
        name = entry_name(info)
        path = name.removeprefix(f"{self.root}/").removesuffix("/")
        if has_control(path):
            printable = "".join("\ufffd" if has_control(character) else character for character in path)
            return SourceEntry(printable, "unreadable", note="its name has a control character")
        kind = _kind(info)
        if kind == "link":
            return self._link(SourceEntry(path, "link", info.filename), info.file_size)
        note = "not a regular file" if kind == "unreadable" else ""
        return SourceEntry(path, kind, info.filename, note, info.file_size)

    def _link(self, link: SourceEntry, size: int) -> SourceEntry:
        if size > LINK_BYTES:
            return replace(link, kind="unreadable", note=f"a link of {size:,} bytes leads nowhere")
        try:
            target = self.read(link, LINK_BYTES).head
        except OSError as error:
            return replace(link, kind="unreadable", note=str(error))
        return replace(link, note=target.decode("utf-8", errors="replace"))


def _kind(info: ZipInfo) -> Literal["file", "link", "unreadable"]:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_IFMT(mode) in {0, stat.S_IFREG} else "unreadable"
