from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from zipfile import ZipFile

import pytest

from tasks.crawl.github.archive import Archive, ArchiveLimits, ArchiveRefused
from tests.support.crawl.zip_files import DIRECTORY_HEADER, FLAGS, METHOD, saved, zipped
from tests.support.marketplace import malice

TEXT = b"# Sage\n"


def refusal(path: Path, limits: ArchiveLimits = ArchiveLimits()) -> ArchiveRefused:  # noqa: B008
    with pytest.raises(ArchiveRefused) as refused:
        Archive(path, limits)
    return refused.value


def renamed(name: bytes) -> bytes:
    """Return an archive of two entries, the second under a name that zipfile would not write."""
    placeholder = b"h/" + b"x" * (len(name) - 2)
    data = zipped({"h/SKILL.md": TEXT, placeholder.decode(): TEXT})
    assert data.count(placeholder) == 2
    return data.replace(placeholder, name)


def in_every_header(data: bytes, field: int, value: bytes) -> bytes:
    """Return an archive with other bytes in its one file's header, and in the directory's of it."""
    changed = bytearray(data)
    for signature, shift in ((DIRECTORY_HEADER, 0), (b"PK\3\4", 2)):
        at = changed.index(signature) + field - shift
        changed[at : at + len(value)] = value
    return bytes(changed)


def directory_of(entries: int, name_bytes: int = 1) -> bytes:
    """Return a zip file that is all directory, its entries without any data."""
    header = struct.pack("<4s6H3L5H2L", DIRECTORY_HEADER, *[0] * 9, name_bytes, *[0] * 6) + b"x" * name_bytes
    size = len(header) * entries
    return header * entries + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, size, 0, 0)


@pytest.mark.parametrize(
    "name",
    [
        b"h/../../outside", b"h/..", b"../outside", b"/etc/passwd", b"h//etc/passwd", b"h/./x", b"C:/x",
        b"c:x", b"h/a\\..\\..\\x", b"h\\x", b"h/x\0.md",
    ],
)  # fmt: skip
def test_a_name_that_could_lead_out_is_refused_and_told(tmp_path: Path, name: bytes) -> None:
    refused = refusal(saved(tmp_path, renamed(name)))
    assert refused.reason == "archive-path"
    assert (
        name.decode().replace("\\", "\\\\" if b"\0" in name else "\\").replace("\0", "\\x00")
        in refused.detail
    )


@pytest.mark.parametrize("name", ["outside", "other/SKILL.md", "H/SKILL.md"])
def test_a_second_root_is_refused_and_told(tmp_path: Path, name: str) -> None:
    refused = refusal(saved(tmp_path, zipped({"h/SKILL.md": TEXT, name: TEXT})))
    assert refused.reason == "archive-roots"
    assert name in refused.detail


@pytest.mark.parametrize("again", [b"h/ab", b"h/b/"])
def test_a_name_that_occurs_twice_is_refused(tmp_path: Path, again: bytes) -> None:
    data = zipped({"h/ab": TEXT, "h/b": TEXT, "h/" + "c" * (len(again) - 2): TEXT})
    refused = refusal(saved(tmp_path, data.replace(b"h/" + b"c" * (len(again) - 2), again)))
    assert (refused.reason, refused.detail) == (
        "archive-duplicate",
        f"{again.decode().rstrip('/')} is in it twice",
    )


def test_names_that_differ_in_letter_case_are_two_files(tmp_path: Path) -> None:
    with Archive(saved(tmp_path, zipped({"h/SKILL.md": TEXT, "h/skill.md": TEXT}))) as archive:
        assert [entry.path for entry in archive.entries()] == ["SKILL.md", "skill.md"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (FLAGS, 0x1, "archive-encrypted"),
        (FLAGS, 0x40, "archive-encrypted"),
        (FLAGS, 0x20, "archive-compression"),
        (METHOD, 12, "archive-compression"),
        (METHOD, 99, "archive-compression"),
    ],
)
def test_what_cannot_be_read_by_everyone_is_refused(
    tmp_path: Path, field: int, value: int, reason: str
) -> None:
    data = in_every_header(zipped({"h/SKILL.md": TEXT}), field, value.to_bytes(2, "little"))
    refused = refusal(saved(tmp_path, data))
    assert refused.reason == reason
    assert "h/SKILL.md" in refused.detail


def test_one_entry_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, zipped({"h/a": TEXT, "h/b": TEXT, "h/c": TEXT}))
    assert refusal(path, ArchiveLimits(files=2)).reason == "archive-files"
    with Archive(path, ArchiveLimits(files=3)) as archive:
        assert len(archive.entries()) == 3


def test_one_byte_more_than_may_be_unpacked_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, zipped({"h/a": b"x" * 60, "h/b": b"x" * 60}))
    refused = refusal(path, ArchiveLimits(unpacked_bytes=119))
    assert refused.reason == "archive-size"
    assert "h/b" in refused.detail
    with Archive(path, ArchiveLimits(unpacked_bytes=120)) as archive:
        assert archive.root == "h"


@pytest.mark.parametrize(("entries", "name_bytes"), [(600_000, 1), (200, 60_000), (100_000, 20)])
def test_a_huge_directory_is_refused_in_little_memory(tmp_path: Path, entries: int, name_bytes: int) -> None:
    path = saved(tmp_path, directory_of(entries, name_bytes))
    tracemalloc.start()
    try:
        refused = refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.reason == "archive-files"
    assert peak < 12_000_000


@pytest.mark.parametrize("kept", [0, 1, 21, 22, 60, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    data = zipped({"h/SKILL.md": TEXT}, comment=b"0f" * 20)
    assert refusal(saved(tmp_path, data[:kept])).reason == "archive-damaged"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"<html><body>Rate limit</body></html>" * 9, id="no archive"),
        pytest.param(b"#!/bin/sh\n" + zipped({"h/SKILL.md": TEXT}), id="something stands before it"),
        pytest.param(zipped({"h/SKILL.md": TEXT}) + b"\n", id="something follows it"),
        pytest.param(zipped({"h/SKILL.md": TEXT}).replace(DIRECTORY_HEADER, b"PK\1\3"), id="broken header"),
        pytest.param(directory_of(2)[:-10] + struct.pack("<LLH", 60, 0, 0), id="directory too short"),
        pytest.param(zipped({"h/ümlaut": TEXT}).replace("ü".encode(), b"\xff\xfe"), id="name no UTF-8"),
    ],
)
def test_what_is_no_whole_zip_file_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refusal(saved(tmp_path, data)).reason == "archive-damaged"


def test_the_end_record_in_64_bits_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zipfile.ZIP_FILECOUNT_LIMIT", 2)
    path = saved(tmp_path, zipped({"h/a": TEXT, "h/b": TEXT, "h/c": TEXT}, comment=b"0f" * 20))
    assert b"PK\6\6" in path.read_bytes()
    with Archive(path) as archive:
        assert len(archive.entries()) == 3
    assert refusal(path, ArchiveLimits(files=2)).reason == "archive-files"
    path.write_bytes(path.read_bytes().replace(b"PK\6\6", b"PK\6\5"))
    assert refusal(path).reason == "archive-damaged"


def test_entries_that_share_their_bytes_unpack_to_no_more_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with ZipFile(path, "w", 8) as archive:
        archive.writestr("h/SKILL.md", b"0" * 1_000_000)
        for number in range(1_500):
            shared = archive.getinfo("h/SKILL.md")
            archive.filelist.append(type(shared)(f"h/{number:04}"))
            for field in ("file_size", "compress_size", "CRC", "compress_type", "header_offset"):
                setattr(archive.filelist[-1], field, getattr(shared, field))
    assert path.stat().st_size < 200_000
    assert refusal(path).reason == "archive-size"


def test_a_bomb_is_refused_by_what_it_says_and_left_off_where_it_says_less(tmp_path: Path) -> None:
    limits = ArchiveLimits(unpacked_bytes=3_000_000)
    assert refusal(saved(tmp_path, malice.bomb(4_000_000)), limits).reason == "archive-size"
    with Archive(saved(tmp_path, malice.understated(4_000_000, 1_000)), limits) as archive:
        bomb = next(entry for entry in archive.entries() if "bomb" in entry.path)
        with pytest.raises(OSError, match="archive"):
            archive.read(bomb, 0)
