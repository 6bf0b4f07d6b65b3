"""Archives of repositories: what they hold is read, and what is unsafe or over a limit refused."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.schemas import Dropped, RawDocument
from tasks.crawl.github.archive import Archive, ArchiveLimits, ArchiveRefused
from tasks.crawl.source.base import Item
from tasks.crawl.source.bundle import DEFAULT_LIMITS, DocumentLimits
from tests.support.crawl.crawling import opened
from tests.support.crawl.zip_files import (
    CRC,
    DIRECTORY_HEADER,
    FLAGS,
    LINK,
    METHOD,
    NAME,
    PIPE,
    SIZE,
    bomb,
    patched,
    read_archive,
    saved,
    understated,
    zipped,
)

if TYPE_CHECKING:
    from conftest import WorkTree

MINT = b"# Mint\nPick the leaves before noon.\n"


def rows(path: Path, limits: DocumentLimits = DEFAULT_LIMITS) -> list[RawDocument | Dropped]:
    with Archive(path) as archive:
        return list(read_archive(archive, "ada/herbs", "spec", limits))


def document(path: Path) -> RawDocument:
    (row,) = rows(path)
    assert isinstance(row, RawDocument)
    return row


def export(worktree: WorkTree, path: Path) -> Path:
    worktree.git("archive", "--format=zip", "--prefix=herbs-0f/", f"--output={path}", "HEAD")
    return path


def known_to_an_archive(row: Item) -> RawDocument | Dropped:
    """Return a row of the git source without what only its caller knows."""
    if isinstance(row, Dropped):
        return row
    assert isinstance(row, RawDocument)
    return replace(row, repo=None, ref=None, commit=None, tree_sha=None, url=None, author=None)


def test_an_archive_that_git_made_says_what_the_git_source_says(worktree: WorkTree, tmp_path: Path) -> None:
    worktree.write("LICENSE", "Free for all gardens.")
    worktree.write("skills/mint/SKILL.md", MINT)
    worktree.write("skills/mint/dry it/ümlaut – 薄荷.txt", "hang")
    worktree.write("skills/sage/skill.md", b"\xff\xfe not text \0")
    worktree.write("skills/sage/empty", "")
    worktree.write("notes/odd.md", "no skill")
    (worktree.path / "skills/mint/water").symlink_to("../../../outside")
    (worktree.path / "more").symlink_to("skills")
    worktree.commit()
    archive = export(worktree, tmp_path / "a.zip")
    with Archive(archive) as held:
        assert held.root == "herbs-0f"
        found = list(read_archive(held, "local/herbs", worktree.spec))
    assert found == [known_to_an_archive(row) for row in opened(worktree.spec).read()]
    assert [(row.doc_id, isinstance(row, Dropped) and row.reason) for row in found] == [
        ("local/herbs/more", "symlink"),
        ("local/herbs/skills/mint", False),
        ("local/herbs/skills/sage", False),
    ]


def test_a_name_with_a_control_character_is_a_finding_and_the_rest_is_read(tmp_path: Path) -> None:
    data = zipped({"h/mint/SKILL.md": MINT, "h/mint/Icon\r": b"", "h/mint/a.txt": b"a"})
    icon, row = rows(saved(tmp_path, data))
    told = "mint/Icon\ufffd: its name has a control character"
    assert icon == Dropped("ada/herbs/mint/Icon\ufffd", "spec", "unreadable", told)
    assert isinstance(row, RawDocument)
    assert row.content == MINT
    assert [file.path for file in row.files or ()] == ["a.txt"]
    assert [(f.code, f.message) for f in row.findings] == [("bundle.unreadable", told)]


def test_links_and_pipes_are_told_and_not_followed(tmp_path: Path) -> None:
    contents = {
        "h/mint/SKILL.md": MINT,
        "h/mint/passwords": b"/etc/passwd",
        "h/mint/pipe": b"",
        "h/sage": b"../../elsewhere",
        "h/long": b"x" * 5_000,
    }
    modes = {"h/mint/passwords": LINK, "h/mint/pipe": PIPE, "h/sage": LINK, "h/long": LINK}
    long, mint, pipe, sage = rows(saved(tmp_path, zipped(contents, modes=modes)))
    assert long == Dropped(
        "ada/herbs/long", "spec", "unreadable", "long: a link of 5,000 bytes leads nowhere"
    )
    assert pipe == Dropped("ada/herbs/mint/pipe", "spec", "unreadable", "mint/pipe: not a regular file")
    assert sage == Dropped("ada/herbs/sage", "spec", "symlink", "sage -> ../../elsewhere")
    assert isinstance(mint, RawDocument)
    assert mint.files == ()
    assert [finding.code for finding in mint.findings] == ["bundle.symlink", "bundle.unreadable"]


def test_names_that_are_not_utf8_are_read_and_shown_with_replacements(tmp_path: Path) -> None:
    data = zipped({"h/SKILL.md": MINT, "h/caf_": b"x"}).replace(b"h/caf_", b"h/caf\xe9")
    assert [(file.path, file.size) for file in document(saved(tmp_path, data)).files or ()] == [
        ("caf\ufffd", 1)
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(SIZE, (len(MINT) - 1).to_bytes(4, "little"), id="says less than it holds"),
        pytest.param(SIZE, (len(MINT) + 1).to_bytes(4, "little"), id="says more than it holds"),
        pytest.param(CRC, b"\0\0\0\0", id="wrong checksum"),
        pytest.param(NAME, b"h/sage/SKILL.md", id="another name in the directory"),
    ],
)
def test_a_damaged_member_is_told_and_the_next_is_read(tmp_path: Path, field: int, value: bytes) -> None:
    data = zipped({"h/mint/SKILL.md": MINT, "h/thyme/SKILL.md": MINT})
    damaged, sound = rows(saved(tmp_path, patched(data, field, value)))
    assert isinstance(damaged, Dropped)
    assert (damaged.reason, damaged.lost_to) == ("unreadable", None)
    assert isinstance(sound, RawDocument)
    assert sound.content == MINT


def test_what_is_unpacked_counts_over_the_archives_life(tmp_path: Path) -> None:
    contents = {"h/LICENSE": b"x" * 900, "h/a/SKILL.md": MINT, "h/b/SKILL.md": MINT}
    path = saved(tmp_path, zipped(contents))
    limits = ArchiveLimits(unpacked_bytes=1_500)
    with Archive(path, limits) as archive:
        reading = read_archive(archive, "a/h", "s")
        assert next(reading).doc_id == "a/h/a"
        with pytest.raises(ArchiveRefused, match="LICENSE") as refused:
            next(reading)
    assert refused.value.reason == "archive-size"


_PART = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=8
)
_PATH = st.lists(_PART.filter(lambda part: part not in {".", ".."}), min_size=1, max_size=4).map("/".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.dictionaries(_PATH, st.binary(max_size=300), max_size=8))
def test_every_file_comes_back_as_it_went_in(tmp_path: Path, contents: dict[str, bytes]) -> None:
    path = saved(tmp_path, zipped({f"root/{name}": content for name, content in contents.items()}))
    with Archive(path) as archive:
        assert archive.root == ("root" if contents else "")
        files = [entry for entry in archive.entries() if entry.kind == "file"]
        assert {entry.path: archive.read(entry, entry.size).head for entry in files} == contents


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(min_value=0),
    value=st.binary(min_size=1, max_size=6),
    cut=st.none() | st.integers(min_value=0),
)
def test_whatever_its_bytes_an_archive_is_read_or_refused_or_told_damaged(
    tmp_path: Path, at: int, value: bytes, cut: int | None
) -> None:
    data = bytearray(zipped({"h/": b"", "h/SKILL.md": MINT, "h/x": b"x" * 99}, comment=b"0f" * 20))
    at %= len(data)
    data[at : at + len(value)] = value
    path = saved(tmp_path, bytes(data[: len(data) if cut is None else cut % len(data)]))
    found: list[RawDocument | Dropped] = []
    with suppress(ArchiveRefused):
        found = rows(path)
    assert not (found and cut is not None)
    assert all(row.source == "spec" for row in found)


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


def twice(again: bytes) -> bytes:
    """Return an archive with a name that another has already, as a file or as a folder."""
    placeholder = b"h/" + b"c" * (len(again) - 2)
    return zipped({"h/ab": TEXT, "h/b": TEXT, placeholder.decode(): TEXT}).replace(placeholder, again)


def packed_with(field: int, value: int) -> bytes:
    return in_every_header(zipped({"h/SKILL.md": TEXT}), field, value.to_bytes(2, "little"))


PLAIN = zipped({"h/SKILL.md": TEXT})
COMMENTED = zipped({"h/SKILL.md": TEXT}, comment=b"0f" * 20)


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        *[
            (zipped({"h/SKILL.md": TEXT, name: TEXT}), "archive-roots", name)
            for name in ("outside", "other/SKILL.md", "H/SKILL.md")
        ],
        (twice(b"h/ab"), "archive-duplicate", "ab is in it twice"),
        (twice(b"h/b/"), "archive-duplicate", "b is in it twice"),
        (packed_with(FLAGS, 0x1), "archive-encrypted", "h/SKILL.md"),
        (packed_with(FLAGS, 0x40), "archive-encrypted", "h/SKILL.md"),
        (packed_with(FLAGS, 0x20), "archive-compression", "h/SKILL.md"),
        (packed_with(METHOD, 12), "archive-compression", "h/SKILL.md"),
        (packed_with(METHOD, 99), "archive-compression", "h/SKILL.md"),
        *[(COMMENTED[:kept], "archive-damaged", "") for kept in (0, 1, 21, 22, 60, -1)],
        (b"<html><body>Rate limit</body></html>" * 9, "archive-damaged", ""),
        (b"#!/bin/sh\n" + PLAIN, "archive-damaged", ""),
        (PLAIN + b"\n", "archive-damaged", ""),
        (PLAIN.replace(DIRECTORY_HEADER, b"PK\1\3"), "archive-damaged", ""),
        (directory_of(2)[:-10] + struct.pack("<LLH", 60, 0, 0), "archive-damaged", ""),
        (zipped({"h/ümlaut": TEXT}).replace("ü".encode(), b"\xff\xfe"), "archive-damaged", ""),
    ],
)
def test_what_is_no_plain_whole_zip_file_of_one_root_is_refused_and_told(
    tmp_path: Path, data: bytes, reason: str, said: str
) -> None:
    refused = refusal(saved(tmp_path, data))
    assert refused.reason == reason
    assert said in refused.detail


def test_one_byte_or_entry_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, zipped({"h/a": b"x" * 60, "h/b": b"x" * 60}))
    refused = refusal(path, ArchiveLimits(unpacked_bytes=119))
    assert refused.reason == "archive-size"
    assert "h/b" in refused.detail
    with Archive(path, ArchiveLimits(unpacked_bytes=120)) as archive:
        assert archive.root == "h"
    path = saved(tmp_path, zipped({"h/a": TEXT, "h/A": TEXT, "h/c": TEXT}))  # letter case makes two files
    assert refusal(path, ArchiveLimits(files=2)).reason == "archive-files"
    with Archive(path, ArchiveLimits(files=3)) as archive:
        assert [entry.path for entry in archive.entries()] == ["a", "A", "c"]


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
    assert refusal(saved(tmp_path, bomb(4_000_000)), limits).reason == "archive-size"
    with Archive(saved(tmp_path, understated(4_000_000, 1_000)), limits) as archive:
        found = next(entry for entry in archive.entries() if "bomb" in entry.path)
        with pytest.raises(OSError, match="archive"):
            archive.read(found, 0)
