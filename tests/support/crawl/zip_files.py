"""Zip files written by hand, honest and dishonest."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from storage.schemas import Dropped, RawDocument
from tasks.crawl.github.archive import Archive
from tasks.crawl.source.bundle import DEFAULT_LIMITS, DocumentLimits, plan, read_skill

LINK, PIPE = stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644
DIRECTORY_HEADER = b"PK\1\2"
FLAGS, METHOD, CRC, SIZE, NAME = 8, 10, 16, 24, 46  # where they stand in a header of the directory


def zipped(
    contents: Mapping[str, bytes], *, modes: Mapping[str, int] | None = None, comment: bytes = b""
) -> bytes:
    """Return an archive of these contents by name, with Unix modes where given."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        archive.comment = comment
        for name, content in contents.items():
            info = ZipInfo(name)
            info.create_system = 3
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content, ZIP_DEFLATED)
    return buffer.getvalue()


_SKILL = b"---\nname: bait\ndescription: Ties a fishing knot\n---\n# Knots\n\nWet the line before you pull.\n"
# What makes an archive worth reading that no honest forge makes.
_BAIT = {"trap-main/skills/bait/SKILL.md": _SKILL}


def climbing() -> bytes:
    """Return an archive with an entry that climbs out of the folder it is unpacked to."""
    return zipped(_BAIT | {"trap-main/../../../climbed.txt": b"out"})


def bomb(size: int, name: str = "bomb/SKILL.md") -> bytes:
    """Return an archive with a file of this many bytes that packs to a thousandth of it."""
    return zipped(_BAIT | {f"trap-main/skills/{name}": bytes(size)})


def understated(size: int, said: int) -> bytes:
    """Return a bomb of `size` bytes that both its headers say is of `said` bytes."""
    packed = bytearray(bomb(size))
    crc = zlib.crc32(bytes(size)).to_bytes(4, "little")
    # Both headers have the CRC, the packed size, the unpacked size, one after the other.
    at = packed.find(crc)
    while at >= 0:
        if packed[at + 8 : at + 12] == size.to_bytes(4, "little"):
            packed[at + 8 : at + 12] = said.to_bytes(4, "little")
        at = packed.find(crc, at + 1)
    return bytes(packed)


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "archive.zip"
    path.write_bytes(data)
    return path


def patched(data: bytes, field: int, value: bytes) -> bytes:
    """Return an archive with other bytes in the directory's first header."""
    at = data.index(DIRECTORY_HEADER) + field
    return data[:at] + value + data[at + len(value) :]


def read_archive(
    archive: Archive, repository: str, source: str, limits: DocumentLimits = DEFAULT_LIMITS
) -> Iterator[RawDocument | Dropped]:
    """Yield every skill of an archive and the dropped entries; each is read when it is asked for."""
    for row in plan(archive.entries(), repository, source):
        yield row if isinstance(row, Dropped) else read_skill(row, archive.read, limits, source)
