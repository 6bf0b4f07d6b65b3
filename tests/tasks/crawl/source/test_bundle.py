from __future__ import annotations

import posixpath
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.schemas import Dropped, RawDocument
from tasks.crawl.git.source import GitSource, make_repository
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.source.bundle import BundledSkill, SourceEntry, consume, plan

FOLDERS = st.lists(st.sampled_from(["a", "A", "b", "ü x"]), max_size=3).map("/".join)
NAMES = st.sampled_from(["SKILL.md", "skill.md", "run.sh", "LICENSE", "Copying.txt", "notes.md"])
PATHS = st.sets(st.tuples(FOLDERS, NAMES).map(lambda p: posixpath.join(*p)), min_size=1, max_size=25)


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
