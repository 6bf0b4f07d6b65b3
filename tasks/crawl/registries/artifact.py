"""An artifact of a registry, on disk: one file, or an archive whose files are read within limits."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tasks.crawl.github.archive import Archive, ArchiveLimits, ArchiveRefused, check_name, has_control, shown
from tasks.crawl.source.bundle import LINK_BYTES, Content, DocumentLimits, Reader, SourceEntry, consume

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_PIECE = 1 << 16
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError, OverflowError)


async def fetch(http: Http, url: str, path: Path, digest: str | None, limits: DocumentLimits) -> str:
    """Download an artifact that what was crawled names into `path`; return its digest.

    Raises as `Http.download`, and HttpTerminal `digest-mismatch` for another digest than one that is given.
    """
    answer = await http.download(url, path, max_bytes=limits.bundle_bytes, roams=True)
    with path.open("rb") as file:
        found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if digest not in (None, found):
        raise answer.error("digest-mismatch", f"its digest is {found}, and {digest} is stated: not taken")
    return found


@contextmanager
def opened(
    path: Path, *, archive: bool, limits: DocumentLimits
) -> Iterator[tuple[list[SourceEntry], Reader]]:
    """Open a downloaded artifact; give its entries, and what reads them.

    An `archive` is a zip file or a tar file with gzip, as its first bytes tell; else it is a SKILL.md. One
    that is damaged, holds paths that lead out of it, or is over the limits raises ArchiveRefused.
    """
    if not archive:
        yield [SourceEntry("SKILL.md", key=str(path), size=path.stat().st_size)], read_file
        return
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    if is_zip:
        most = ArchiveLimits(files=limits.bundle_files, unpacked_bytes=_most_bytes(limits))
        with Archive(path, most, rooted=False) as held:
            yield held.entries(), held.read
        return
    with _tar_file(path, _most_bytes(limits)) as tar:
        members = _members(tar, limits)
        entries = [_entry(name, member) for name, member in members.items()]
        yield entries, lambda entry, keep: _member(tar, members[entry.key], keep)


def read_file(entry: SourceEntry, keep: int) -> Content:
    """Read a file on disk, whose path is the entry's key."""
    return consume(_pieces(Path(entry.key).open("rb")), keep)


def _most_bytes(limits: DocumentLimits) -> int:
    """Return the bytes of an archive's files at most, with the headers of a tar file."""
    return limits.bundle_bytes + 1_024 * limits.bundle_files


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


def _tar_file(path: Path, most: int) -> tarfile.TarFile:
    try:
        # Unpacked here: tarfile would read a header of any size.
        with gzip.open(path) as packed:
            content = packed.read(most + 1)
        if len(content) > most:
            raise ArchiveRefused("archive-size", f"it unpacks to more than the limit of {most:,} bytes")
        return tarfile.open(fileobj=BytesIO(content), mode="r:")
    except _DAMAGE as error:
        raise ArchiveRefused("archive-damaged", f"it is no zip or tar.gz file ({error})") from error


def _members(tar: tarfile.TarFile, limits: DocumentLimits) -> dict[str, tarfile.TarInfo]:
    found: dict[str, tarfile.TarInfo] = {}
    try:
        for member in tar:
            name = member.name.removeprefix("./")
            if member.isdir():
                continue
            check_name(name)
            if name in found:
                raise ArchiveRefused("archive-duplicate", f"{shown(name)} is in it twice")
            found[name] = member
            if len(found) > limits.bundle_files:
                most = f"the limit of {limits.bundle_files:,}"
                raise ArchiveRefused("archive-files", f"it has more entries than {most}")
    except _DAMAGE as error:
        raise ArchiveRefused("archive-damaged", f"it breaks off ({error})") from error
    return found


def _entry(name: str, member: tarfile.TarInfo) -> SourceEntry:
    if has_control(name):
        return SourceEntry(shown(name), "unreadable", note="its name has a control character")
    if member.issym():
        return SourceEntry(name, "link", note=member.linkname[:LINK_BYTES])
    if not member.isreg() or member.issparse():
        return SourceEntry(name, "unreadable", note="not a regular file")
    return SourceEntry(name, key=name, size=member.size)


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo, keep: int) -> Content:
    try:
        return consume(_pieces(tar.extractfile(member) or BytesIO()), keep)
    except _DAMAGE as error:
        raise OSError(f"it is damaged in the archive: {error}") from error
