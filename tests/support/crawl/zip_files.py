"""Zip files written by hand, honest and dishonest."""

from __future__ import annotations

import stat
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
