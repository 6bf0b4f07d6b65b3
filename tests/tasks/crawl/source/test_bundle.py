"""Bundles: the skills of a listing, and their files within limits."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.schemas import Dropped, Finding, RawDocument
from tasks.crawl.git.source import GitSource, make_repository
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.source.bundle import (
    Bundle,
    BundledSkill,
    DocumentLimits,
    SourceEntry,
    consume,
    plan,
    take_bundle,
)

FOLDERS = st.lists(st.sampled_from(["a", "A", "b", "ü x"]), max_size=3).map("/".join)
NAMES = st.sampled_from(["SKILL.md", "skill.md", "run.sh", "LICENSE", "Copying.txt", "notes.md"])
PATHS = st.sets(st.tuples(FOLDERS, NAMES).map(lambda p: posixpath.join(*p)), min_size=1, max_size=25)
CONTENTS = st.dictionaries(st.sampled_from([f"f{n}" for n in range(9)]), st.binary(max_size=12))


@settings(deadline=None)
@given(PATHS)
def test_every_skill_file_is_taken_or_dropped_and_ids_are_unique(paths: set[str]) -> None:
    rows = plan((SourceEntry(path) for path in paths), "ada/herbs", "spec")
    skills = [row for row in rows if isinstance(row, BundledSkill)]
    lost = [row for row in rows if isinstance(row, Dropped)]
    named = {path for path in paths if posixpath.basename(path).lower() == "skill.md"}
    assert {s.entry.path for s in skills} | {d.detail for d in lost} == named
    assert len({s.doc_id.casefold() for s in skills}) == len(skills)
    assert {d.lost_to for d in lost} <= {s.doc_id for s in skills}
    assert {d.reason for d in lost} <= {"duplicate_id"}


@pytest.mark.parametrize(
    ("path", "doc_id"),
    [
        ("/SKILL.md", "ada/herbs"),
        ("a//SKILL.md", "ada/herbs/a"),
        ("../SKILL.md", "ada/herbs"),
        ("deep/" * 20_000 + "SKILL.md", "ada/herbs/" + ("deep/" * 40)[:-1]),
    ],
    ids=["absolute", "an empty part", "above the root", "100 KB deep"],
)
def test_a_path_that_is_not_plain_is_dropped_and_its_neighbours_are_taken(path: str, doc_id: str) -> None:
    rows = plan([SourceEntry(path), SourceEntry("mint/SKILL.md")], "ada/herbs", "spec")
    assert [row.reason for row in rows if isinstance(row, Dropped)] == ["unreadable"]
    assert {row.doc_id for row in rows} == {doc_id, "ada/herbs/mint"}


@settings(deadline=None)
@given(PATHS)
def test_a_file_belongs_to_the_nearest_skill_above_it(paths: set[str]) -> None:
    rows = plan((SourceEntry(path) for path in paths), "ada/herbs", "spec")
    folders = {posixpath.dirname(p) for p in paths if posixpath.basename(p).lower() == "skill.md"}
    for skill in (row for row in rows if isinstance(row, BundledSkill)):
        for file in skill.files:
            above = [f for f in folders if f == "" or f"{file.folder}/".startswith(f"{f}/")]
            assert max(above, key=len) == skill.entry.folder
        for licence in skill.licences:
            assert licence.folder == "" or f"{skill.entry.folder}/".startswith(f"{licence.folder}/")
        depths = [len(licence.folder) for licence in skill.licences]
        assert depths == sorted(depths, reverse=True)


def bare(row: RawDocument | Dropped) -> RawDocument | Dropped:
    if isinstance(row, Dropped):
        return replace(row, source="")
    return replace(row, source="", ref=None, commit=None, tree_sha=None, url=None)


@settings(max_examples=10, deadline=None)
@given(PATHS)
def test_a_folder_and_a_repository_of_it_hold_the_same(paths: set[str]) -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch, "herbs")
        for number, path in enumerate(sorted({"SKILL.md", *paths})):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(b"%d\r\n" % number)
        spec = make_repository(folder, Path(scratch, "made", "herbs.git"))
        from_git = [bare(row) for row in GitSource(spec.removeprefix("git+")).read()]
        assert from_git == [bare(row) for row in DirectorySource(str(folder)).read()]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9)), st.integers(0, 40))
def test_consuming_keeps_the_first_bytes_whatever_the_pieces(pieces: list[bytes], keep: int) -> None:
    whole = b"".join(pieces)
    assert consume(pieces, keep) == consume([whole], keep)
    assert consume(pieces, keep)[:2] == (whole[:keep], len(whole))


def take(files: dict[str, bytes], limits: DocumentLimits | None = None) -> tuple[Bundle, list[Finding]]:
    found: list[Finding] = []
    given = ((path, iter([content])) for path, content in files.items())
    return take_bundle(given, len(files), limits or DocumentLimits(), found), found


def codes(found: list[Finding]) -> list[str]:
    return [finding.code for finding in found]


@given(CONTENTS, st.integers(0, 10), st.integers(0, 60))
def test_what_is_kept_is_within_the_limits_and_the_rest_is_named(
    files: dict[str, bytes], most: int, size: int
) -> None:
    bundle, found = take(files, DocumentLimits(kept_files=most, kept_bytes=size))
    kept = {file.path: file.content for file in bundle.contents}
    assert bundle.files is not None
    assert {f.path: (f.size, f.sha256) for f in bundle.files} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in files.items()
    }
    assert kept.items() <= files.items()
    assert len(kept) <= most
    assert sum(map(len, kept.values())) <= size
    left = [path for path in files if path not in kept]
    assert codes(found) == ["bundle.not-kept"] * bool(left)
    if left:
        assert found[0].message.startswith(f"{len(left)} files are over the limit")
        assert left[0] in found[0].message
    # Nothing is left out that would still have fitted when its turn came.
    assert len(kept) == most or all(len(files[p]) > size - sum(map(len, kept.values())) for p in left)


def test_one_large_file_does_not_keep_the_next_one_out() -> None:
    bundle, _ = take({"a.bin": b"x" * 50, "run.sh": b"ls"}, DocumentLimits(kept_bytes=10))
    assert [file.path for file in bundle.contents] == ["run.sh"]


def test_five_thousand_files_are_named_and_none_is_read() -> None:
    def refuse() -> Iterator[tuple[str, Iterator[bytes]]]:
        msg = "nothing may be read"
        raise AssertionError(msg)
        yield

    found: list[Finding] = []
    assert take_bundle(refuse(), 5000, DocumentLimits(), found) == Bundle(None)
    assert found == [Finding("bundle.too-large", "warning", "5,000 files, more than the limit of 2,000")]


def test_a_file_that_never_ends_is_read_to_the_limit() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"0" * 1000

    found: list[Finding] = []
    limits = DocumentLimits(bundle_bytes=10_000)
    assert take_bundle([("bomb", endless())], 1, limits, found) == Bundle(None)
    assert (codes(found), read) == (["bundle.too-large"], 11)


def test_an_unreadable_file_is_named_and_the_others_are_taken() -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("it is damaged")

    found: list[Finding] = []
    bundle = take_bundle([("a", broken()), ("b", iter([b"1"]))], 2, DocumentLimits(), found)
    assert [file.path for file in bundle.contents] == ["b"]
    assert found == [Finding("bundle.unreadable", "warning", "a: it is damaged")]


def test_names_that_a_file_system_cannot_hold_are_named() -> None:
    long = "n" * 300
    _, found = take({f"docs/{long}": b"", "Run.sh": b"1", "run.SH": b"2", "é": b"", "e\u0301": b"", "a": b""})
    assert {finding.code: finding.message for finding in found} == {
        "bundle.long-name": f"1 names have more than 255 bytes: docs/{'n' * 55}...{'n' * 17}",
        "bundle.same-name": "4 paths are alike but for letter case or accents: Run.sh, run.SH, é, e\u0301",
    }
