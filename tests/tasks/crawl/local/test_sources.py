"""Skills on this machine: folders and tables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import SourceError
from storage.root import Root
from storage.schemas import BundledFile, Dropped, RawDocument
from tasks.crawl.collect import collect
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.local.parquet_file import ParquetSource
from tasks.crawl.source.bundle import DocumentLimits


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


def test_a_file_that_became_a_link_or_vanished_meanwhile_is_unreadable(garden: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "secret", b"not yours")
    write(garden, "a/SKILL.md")
    late, gone, leaf = (write(garden, path) for path in ("b/SKILL.md", "c/SKILL.md", "d/leaf"))
    write(garden, "d/SKILL.md")
    rows = DirectorySource(str(garden)).read()
    next(rows)
    for path in (late, gone, leaf):
        path.unlink()
    late.symlink_to(secret)
    second, third, fourth = rows
    assert isinstance(second, Dropped)
    assert (second.doc_id, second.reason) == ("local/garden/b", "unreadable")
    assert isinstance(third, Dropped)
    assert (third.reason, third.detail) == ("unreadable", "c/SKILL.md: No such file or directory")
    assert isinstance(fourth, RawDocument)
    assert [f.code for f in fourth.findings] == ["bundle.unreadable"]


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


def test_folders_that_hold_no_skills_of_their_own_are_skipped(garden: Path) -> None:
    own = [".claude/skills/a/SKILL.md", "SKILL.md", "a/SKILL.md", "a/z/SKILL.md", "b/SKILL.md"]
    for path in [".git/SKILL.md", "node_modules/x/SKILL.md", *reversed(own)]:
        write(garden, path)
    assert [d.path for d in documents(garden)] == own
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
def test_links_that_lead_out_are_told_with_target(garden: Path, tmp_path: Path, has_skill: bool) -> None:
    (garden / "mint").symlink_to("../agents/mint")
    write(garden, "sage/SKILL.md" if has_skill else "notes.md")
    now, root = datetime(2026, 3, 1, tzinfo=UTC), Root(tmp_path / "root")
    report = collect(DirectorySource(str(garden)), root, run_id="1", now=now)
    said = f"1 links were not followed: mint -> {tmp_path}/agents/mint; name what they lead to as sources"
    assert (report.state, said in str(report.message)) == ("complete" if has_skill else "failed", True)


def table(path: Path, columns: Mapping[str, object], **options: object) -> ParquetSource:
    pq.write_table(pa.table(columns), path, **options)
    return ParquetSource(str(path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "corpus.parquet"


def test_every_column_goes_where_it_belongs(file: Path) -> None:
    source = table(
        file,
        {
            "id": ["Ada--mint"], "content": ["Pick it. ü"],
            "source_url": ["https://github.com/ada/herbs/tree/main/mint"], "owner": ["ada"],
            "repo": ["herbs"], "branch": ["main"], "path": ["mint"], "stars": [7], "other": ["ignored"],
            "category": ["garden"],
        },
    )  # fmt: skip
    text = "Pick it. ü".encode()
    assert list(source.read()) == [
        RawDocument(
            doc_id="Ada--mint", source=f"parquet:{file}", content=text, size=len(text),
            raw_hash=hashlib.sha256(text).hexdigest(), repo="ada/herbs", ref="main", path="mint",
            url="https://github.com/ada/herbs/tree/main/mint", author="ada", stars=7, category="garden",
            files=None,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)  # fmt: skip
def test_content_may_be_any_text_or_binary(file: Path, kind: pa.DataType) -> None:
    cells = pa.array(["a\r\n\x00", "", "a\r\n\x00"]).cast(kind)
    source = table(file, {"doc_id": ["x", "y", "z"], "content": cells})
    found = [row.content for row in source.read() if isinstance(row, RawDocument)]
    assert found == [b"a\r\n\x00", b"", b"a\r\n\x00"]
    assert source.version() == hashlib.sha256(file.read_bytes()).hexdigest()
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())
    (row,) = table(file, {"id": ["x"], "content": broken, "files": ["many"]}).read()
    assert isinstance(row, RawDocument)
    assert (row.content, row.files) == (b"\xff\xfe", None)  # not UTF-8, and no bundle


def test_rows_without_content_or_id_and_repeated_ids_are_dropped(file: Path) -> None:
    columns = {"id": ["x", None, "y", "X", " ", "y"], "content": ["1", "2", None, "3", "4", "5"]}
    rows = list(table(file, columns).read())
    assert [(r.doc_id, r.content) for r in rows if isinstance(r, RawDocument)] == [("x", b"1"), ("y", b"5")]
    assert [(r.doc_id, r.reason, r.detail, r.lost_to) for r in rows if isinstance(r, Dropped)] == [
        ("", "missing_id", "row 2 has no id", None),
        ("y", "empty", "row 3 has no content", None),
        ("X", "duplicate_id", "row 4", "x"),
        ("", "missing_id", "row 5 has no id", None),
    ]


def test_a_text_over_the_limit_leaves_size_and_hash(file: Path) -> None:
    table(file, {"id": ["x"], "content": ["x" * 11]})
    (row,) = ParquetSource(str(file), limits=DocumentLimits(document_bytes=10)).read()
    assert isinstance(row, RawDocument)
    assert (row.content, row.size, row.raw_hash) == (None, 11, hashlib.sha256(b"x" * 11).hexdigest())
    assert [(f.code, f.severity) for f in row.findings] == [("document.too-large", "error")]


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        *[("category", cell, None) for cell in (["herbs", "food"], b"\xff", None, " ")],
        ("stars", 3.0, 3),
        *[("stars", cell, None) for cell in (float("nan"), "many", None, 1e300)],
    ],
)
def test_odd_categories_and_stars_are_unknown(
    file: Path, column: str, cell: object, expected: int | None
) -> None:
    (row,) = table(file, {"id": ["x"], "content": ["y"], "repo": ["herbs"], column: [cell]}).read()
    assert isinstance(row, RawDocument)
    assert (getattr(row, column), row.repo, row.author) == (expected, "herbs", None)


@pytest.mark.parametrize("column", ["id", "repo"])
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**62, 3], pa.timestamp("us")),
        pa.array([["a"], None]),
        pa.array([{"a": 1}, None]),
        pa.array([b"\xff", b"sage"]),
        pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"sage"], pa.binary()).buffers()),
    ],
    ids=["a time beyond the calendar", "a list", "an object", "binary that is no text", "broken UTF-8"],
)
def test_a_value_that_cannot_be_read_costs_its_row(file: Path, column: str, cells: pa.Array) -> None:
    columns = {"id": ["mint", "sage"], "content": ["1", "2"]} | {column: cells}
    first, second = table(file, columns).read()
    assert isinstance(first, Dropped)
    assert (first.reason, first.detail.startswith(f"row 1, column {column}: ")) == ("unreadable", True)
    assert not isinstance(second, Dropped) or second.reason == "missing_id"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["x"], "text": ["y"]}, r"missing: id \(or doc_id\), content; columns found: name, text"),
        ({"id": ["x"]}, "missing: content; columns found: id"),
        ({"content": ["x"]}, r"missing: id \(or doc_id\); columns found: content"),
        ({"id": ["x"], "content": [1]}, "content is int64"),
    ],
)
def test_missing_columns_are_named_with_all(file: Path, columns: dict[str, object], message: str) -> None:
    source = table(file, columns)
    with pytest.raises(SourceError, match=message) as caught:
        next(source.read())
    assert (caught.value.reason, caught.value.about) == ("columns", f"parquet:{file}")


def test_what_is_no_parquet_file_is_terminal(file: Path, tmp_path: Path) -> None:
    for content in (b"", b"PAR1 but no more", b"plain text" * 100):
        file.write_bytes(content)
        with pytest.raises(SourceError, match="no Parquet file") as caught:
            next(ParquetSource(str(file)).read())
        assert caught.value.reason == "not-parquet"
    for path in (tmp_path, tmp_path / "nothing.parquet"):
        source = ParquetSource(str(path))
        for look in (source.version, lambda source=source: next(source.read())):
            with pytest.raises(SourceError, match="no such file") as caught:
                look()
            assert caught.value.reason == "missing"


def test_a_damaged_file_gives_what_comes_before_the_damage(file: Path) -> None:
    columns = {"id": [str(n) for n in range(400)], "content": [f"{n} " * 500 for n in range(400)]}
    source = table(file, columns, row_group_size=100, compression="zstd", use_dictionary=False)
    data = bytearray(file.read_bytes())
    with pq.ParquetFile(file) as whole:
        start = whole.metadata.row_group(2).column(1).data_page_offset
    data[start : start + 100] = bytes(100)
    file.write_bytes(data)
    rows = source.read()
    assert len(list(islice(rows, 192))) == 192
    with pytest.raises(SourceError, match="cannot be read to its end") as caught:
        list(rows)
    assert caught.value.reason == "damaged"


def test_rows_are_read_as_they_are_asked_for(file: Path) -> None:
    columns = {"id": [str(n) for n in range(1000)], "content": ["x" * 10_000 for _ in range(1000)]}
    table(file, columns, row_group_size=10, use_dictionary=False, compression="none")
    before = pa.total_allocated_bytes()
    rows = ParquetSource(str(file), batch_rows=10).read()
    assert [row.doc_id for row in islice(rows, 3)] == ["0", "1", "2"]
    assert pa.total_allocated_bytes() - before < 2_000_000
    rows.close()  # type: ignore[attr-defined]
    assert pa.total_allocated_bytes() <= before


def bundles(
    file: Path, *rows: list[dict[str, object]] | None, content: pa.DataType | None = None
) -> list[RawDocument]:
    """Return the documents of a table whose column `files` has these cells."""
    kind = pa.list_(
        pa.struct([("path", pa.string()), ("content", content or pa.binary()), ("mode", pa.int32())])
    )
    ids = [f"s{number}" for number in range(len(rows))]
    source = table(file, {"id": ids, "content": ids, "files": pa.array(rows, kind)})
    return [row for row in source.read() if isinstance(row, RawDocument)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_a_column_of_files_brings_the_bundle(file: Path, kind: pa.DataType) -> None:
    given = [
        {"path": "SKILL.md", "content": "x"},
        {"path": "b/run.sh", "content": "ls"},
        {"path": "a", "content": ""},
    ]
    rows = [
        [{**row, "content": row["content"].encode()} if kind != pa.string() else row for row in given],
        None,
        [],
    ]
    unknown, bare = (found := bundles(file, *rows, content=kind))[1:]
    assert [(f.path, f.content) for f in found[0].contents] == [("a", b""), ("b/run.sh", b"ls")]
    assert found[0].files == tuple(
        BundledFile(path, len(content), hashlib.sha256(content).hexdigest())
        for path, content in (("a", b""), ("b/run.sh", b"ls"))
    )
    assert (unknown.files, bare.files, found[0].findings) == (None, (), ())


def test_files_whose_path_leads_elsewhere_are_named_and_not_kept(file: Path) -> None:
    paths = ["../up", "/etc/passwd", "a/./b", "a//b", "fine", "fine", "x" * 5000, None]
    (found,) = bundles(file, [{"path": path, "content": b"1"} for path in paths])
    assert [f.path for f in found.contents] == ["fine"]
    assert {f.code for f in found.findings} == {"bundle.unreadable"}
    assert len(found.findings) == len(paths) - 1
