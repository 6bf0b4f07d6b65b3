from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.schemas import Dropped, RawDocument
from tasks.crawl.github.archive import Archive, ArchiveLimits, ArchiveRefused
from tasks.crawl.source.base import Item
from tasks.crawl.source.bundle import DEFAULT_LIMITS, DocumentLimits, SourceEntry
from tests.support.crawl.crawling import opened
from tests.support.crawl.zip_files import CRC, LINK, NAME, PIPE, SIZE, patched, read_archive, saved, zipped

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


def test_the_root_is_read_from_the_archive(tmp_path: Path) -> None:
    with Archive(
        saved(tmp_path, zipped({"ada-herbs-1c2d/": b"", "ada-herbs-1c2d/SKILL.md": MINT}))
    ) as archive:
        assert archive.root == "ada-herbs-1c2d"
        assert archive.entries() == [
            SourceEntry("SKILL.md", "file", "ada-herbs-1c2d/SKILL.md", size=len(MINT))
        ]


def test_an_archive_of_nothing_has_no_root_and_no_entries(tmp_path: Path) -> None:
    with Archive(saved(tmp_path, zipped({}))) as archive:
        assert (archive.root, archive.entries()) == ("", [])


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


def test_bytes_changed_within_a_member_are_found(tmp_path: Path) -> None:
    data = bytearray(zipped({"h/SKILL.md": MINT}))
    data[60] ^= 0xFF
    (row,) = rows(saved(tmp_path, bytes(data)))
    assert isinstance(row, Dropped)
    assert row.reason == "unreadable"


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


def test_a_text_over_the_documents_limit_is_left_out_with_its_digest(tmp_path: Path) -> None:
    path = saved(tmp_path, zipped({"h/SKILL.md": b"#" * 100_000}))
    (row,) = rows(path, DocumentLimits(document_bytes=1_000))
    assert isinstance(row, RawDocument)
    assert (row.content, row.size) == (None, 100_000)
    assert [finding.code for finding in row.findings] == ["document.too-large"]


_PART = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=8
)
_PATH = st.lists(_PART.filter(lambda part: part not in {".", ".."}), min_size=1, max_size=4).map("/".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.dictionaries(_PATH, st.binary(max_size=300), max_size=8))
def test_every_file_comes_back_as_it_went_in(tmp_path: Path, contents: dict[str, bytes]) -> None:
    path = saved(tmp_path, zipped({f"root/{name}": content for name, content in contents.items()}))
    with Archive(path) as archive:
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
