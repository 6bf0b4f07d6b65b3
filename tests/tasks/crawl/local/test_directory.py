from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.errors import SourceError
from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.collect import collect
from tasks.crawl.local.directory import DirectorySource


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    folder = tmp_path / "garden"
    folder.mkdir()
    return folder


def write(folder: Path, path: str, content: bytes = b"# A skill\n") -> Path:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def documents(folder: Path) -> list[RawDocument]:
    return [row for row in DirectorySource(str(folder)).read() if isinstance(row, RawDocument)]


def dropped(rows: Iterator[RawDocument | Dropped]) -> list[tuple[str, str, str]]:
    return [(d.doc_id, d.reason, d.detail) for d in rows if isinstance(d, Dropped)]


def test_a_skill_carries_its_bytes_and_its_place(garden: Path) -> None:
    text = b"\xef\xbb\xbfPick\x00 it.\r\n\xff"
    write(garden, "skills/mint/Skill.md", text)
    (document,) = documents(garden)
    assert document == RawDocument(
        doc_id="local/garden/skills/mint", source=f"dir:{garden}", content=text, size=len(text),
        raw_hash=hashlib.sha256(text).hexdigest(), repo="local/garden", path="skills/mint/Skill.md",
        url=(garden / "skills/mint").as_uri(), files=(),
    )  # fmt: skip


def test_skills_come_in_the_order_of_their_paths(garden: Path) -> None:
    for path in ["b/SKILL.md", "a/z/SKILL.md", "a/SKILL.md", "SKILL.md"]:
        write(garden, path)
    assert [d.path for d in documents(garden)] == ["SKILL.md", "a/SKILL.md", "a/z/SKILL.md", "b/SKILL.md"]


def test_no_link_is_followed(garden: Path, tmp_path: Path) -> None:
    outside = write(tmp_path, "outside/SKILL.md", b"not yours")
    write(garden, "mint/SKILL.md")
    (garden / "linked").mkdir()
    (garden / "linked/SKILL.md").symlink_to(outside)
    (garden / "out").symlink_to(outside.parent)
    (garden / "within").symlink_to(garden / "mint")
    (garden / "around").symlink_to(".")
    (garden / "mint/secret").symlink_to("/etc/passwd")
    rows = list(DirectorySource(str(garden)).read())
    assert dropped(iter(rows)) == [
        ("local/garden/around", "symlink", "around -> ."),
        ("local/garden/linked", "symlink", f"linked/SKILL.md -> {outside}"),
        ("local/garden/out", "symlink", f"out -> {outside.parent}"),
        ("local/garden/within", "symlink", "within -> mint"),
    ]
    (document,) = [row for row in rows if isinstance(row, RawDocument)]
    assert document.files == ()
    assert [(f.code, f.severity) for f in document.findings] == [("bundle.symlink", "warning")]


def test_a_file_that_became_a_link_after_listing_is_not_followed(garden: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "secret", b"not yours")
    write(garden, "a/SKILL.md")
    late = write(garden, "b/SKILL.md")
    rows = DirectorySource(str(garden)).read()
    next(rows)
    late.unlink()
    late.symlink_to(secret)
    assert [(d.doc_id, d.reason) for d in rows if isinstance(d, Dropped)] == [
        ("local/garden/b", "unreadable")
    ]


def test_what_is_no_regular_file_is_unreadable_and_the_rest_is_read(garden: Path) -> None:
    write(garden, "mint/SKILL.md")
    (garden / "pipe").mkdir()
    os.mkfifo(garden / "pipe/SKILL.md")
    os.mkfifo(garden / "mint/pipe")
    rows = list(DirectorySource(str(garden)).read())
    assert dropped(iter(rows)) == [
        ("local/garden/mint/pipe", "unreadable", "mint/pipe: not a regular file"),
        ("local/garden/pipe", "unreadable", "pipe/SKILL.md: not a regular file"),
    ]
    assert [d.findings[0].code for d in rows if isinstance(d, RawDocument)] == ["bundle.unreadable"]


def test_a_file_that_vanished_is_unreadable(garden: Path) -> None:
    write(garden, "a/SKILL.md")
    gone = write(garden, "b/SKILL.md")
    leaf = write(garden, "c/leaf")
    write(garden, "c/SKILL.md")
    rows = DirectorySource(str(garden)).read()
    next(rows)
    gone.unlink()
    leaf.unlink()
    second, third = rows
    assert isinstance(second, Dropped)
    assert (second.reason, second.detail) == ("unreadable", "b/SKILL.md: No such file or directory")
    assert isinstance(third, RawDocument)
    assert [f.code for f in third.findings] == ["bundle.unreadable"]


def test_folders_that_hold_no_skills_of_their_own_are_skipped(garden: Path) -> None:
    for path in ["SKILL.md", ".git/SKILL.md", "node_modules/x/SKILL.md", ".claude/skills/a/SKILL.md"]:
        write(garden, path)
    assert [d.path for d in documents(garden)] == [".claude/skills/a/SKILL.md", "SKILL.md"]
    assert [f.path for d in documents(garden) for f in d.files or ()] == []


def test_a_name_that_is_no_utf_8_is_read_and_written_readably(garden: Path) -> None:
    target = Path(os.fsdecode(os.fsencode(garden) + b"/m\xffnt"))
    write(target, "SKILL.md", b"text")
    (document,) = documents(garden)
    assert (document.doc_id, document.content) == ("local/garden/m\ufffdnt", b"text")
    assert DirectorySource(str(garden)).version()


def test_a_long_licence_is_cut_and_digested_whole(garden: Path) -> None:
    write(garden, "a/SKILL.md")
    write(garden, "LICENSE", b"x" * 150_000)
    ((licence,),) = [d.licence_files for d in documents(garden)]
    assert licence.text == "x" * 100_000
    assert licence.sha256 == hashlib.sha256(b"x" * 150_000).hexdigest()


@pytest.mark.parametrize("change", ["text", "time", "new", "gone", "link"])
def test_every_change_below_the_folder_changes_the_version(garden: Path, change: str) -> None:
    text = write(garden, "a/SKILL.md", b"one")
    other = write(garden, "a/b/notes.md", b"two")
    (garden / "link").symlink_to("a")
    source = DirectorySource(str(garden))
    before = source.version()
    assert source.version() == before
    if change == "text":
        text.write_bytes(b"longer")
    elif change == "time":
        os.utime(text, ns=(1, 1))
    elif change == "new":
        write(garden, "c/SKILL.md")
    elif change == "gone":
        other.unlink()
    else:
        (garden / "link").unlink()
        (garden / "link").symlink_to("b")
    assert source.version() != before


def test_a_folder_that_is_not_there_or_has_no_skill_is_terminal(garden: Path) -> None:
    for path in [garden / "nothing", write(garden, "file")]:
        source = DirectorySource(str(path))
        for look in (source.version, lambda source=source: list(source.read())):
            with pytest.raises(SourceError, match="no such folder") as caught:
                look()
            assert (caught.value.reason, caught.value.about) == ("missing", f"dir:{path}")
    (garden / "SKILL.md").symlink_to("file")
    rows = DirectorySource(str(garden)).read()
    assert isinstance(next(rows), Dropped)
    with pytest.raises(SourceError, match=r"no SKILL\.md") as caught:
        next(rows)
    assert caught.value.reason == "no-skill"


@pytest.mark.parametrize("has_skill", [True, False])
def test_links_that_lead_out_are_told_with_where_they_lead(
    garden: Path, tmp_path: Path, has_skill: bool
) -> None:
    (garden / "mint").symlink_to("../agents/mint")
    write(garden, "sage/SKILL.md" if has_skill else "notes.md")
    report = collect(
        DirectorySource(str(garden)),
        Root(tmp_path / "root"),
        run_id="1",
        now=datetime(2026, 3, 1, tzinfo=UTC),
    )
    said = f"1 links were not followed: mint -> {tmp_path}/agents/mint; name what they lead to as sources"
    assert (report.state, said in str(report.message)) == ("complete" if has_skill else "failed", True)
