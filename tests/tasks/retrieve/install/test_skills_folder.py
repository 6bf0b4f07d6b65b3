"""The folder of an agent's skills: written and removed whatever kills it, edits in it, and their merges."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import settings as examples
from hypothesis import strategies as st

from storage.errors import Locked, WrongInput
from storage.folder import delete_path, write_new
from tasks.retrieve.install.lock import LOCK_FILE, Pending, read_lock, write_lock
from tasks.retrieve.install.merge import merged_files
from tasks.retrieve.install.skills_folder import (
    STAGING,
    HandEdit,
    digests_in,
    digests_of,
    hand_edits,
    open_skills_folder,
)
from tasks.retrieve.install.skills_lock import change_skills_lock, folder_hash
from tasks.retrieve.install.verification import differences, skill_files
from tests.support.installs import BREAD_ID, MINE, NEW, OLD, WORK, installed, put
from tests.support.paths import PROJECT
from tests.support.processes import slow_but

PATHS = ["SKILL.md", "notes.md", "scripts/run.py", "scripts/deep/er.sql", "assets/grüße 1.csv"]


TREES = st.dictionaries(st.sampled_from(PATHS), st.binary(max_size=3))


def write(folder: Path, tree: dict[str, bytes]) -> None:
    for path, content in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def digests(tree: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(content).hexdigest() for path, content in tree.items()}


@settings(max_examples=60)
@given(TREES, TREES)
def test_edits_are_the_differences_of_two_trees(written: dict[str, bytes], now: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), now)
        assert digests_in(Path(made)) == digests(now)
        found = {edit.path: edit.change for edit in hand_edits(Path(made), digests(written))}
    expected = dict.fromkeys(written.keys() - now.keys(), "missing")
    expected |= dict.fromkeys(now.keys() - written.keys(), "added")
    expected |= {p: "edited" for p in written.keys() & now.keys() if written[p] != now[p]}
    assert found == expected
    assert list(found) == sorted(found)


def test_a_link_is_an_edit_even_to_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path, {"one.md": b"x", "deep/two.md": b"y"})
    written = digests_in(tmp_path)
    (tmp_path / "one.md").rename(tmp_path.parent / "same.md")
    (tmp_path / "one.md").symlink_to(tmp_path.parent / "same.md")
    (tmp_path / "more").symlink_to(tmp_path / "deep")
    assert hand_edits(tmp_path, written) == [HandEdit("more", "added"), HandEdit("one.md", "edited")]
    (tmp_path.parent / "linked").symlink_to(tmp_path)
    assert {edit.change for edit in hand_edits(tmp_path.parent / "linked", written)} == {"missing"}


def test_what_programs_leave_is_no_edit(tmp_path: Path) -> None:
    write(tmp_path, {"scripts/__pycache__/run.pyc": b"x", ".DS_Store": b"x", "SKILL.md": b"y"})
    assert hand_edits(tmp_path, digests({"SKILL.md": b"y"})) == []
    listed = digests({"SKILL.md": b"y", ".DS_Store": b"other"})
    assert hand_edits(tmp_path, listed) == [HandEdit(".DS_Store", "edited")]


AT_LEAST = 20  # moments at which each kind of work may be killed


def files_in(folder: Path) -> dict[str, bytes] | None:
    if not folder.exists():
        return None
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder in which the old bread is installed."""
    with open_skills_folder(tmp_path / "skills", create=True) as skills:
        put(OLD, skills)
    return tmp_path / "skills"


def test_a_skill_is_put_and_replaced_and_removed(place: Path) -> None:
    assert (files_in(place / "bread"), read_lock(place).skills["bread"]) == (OLD, installed(OLD))
    with open_skills_folder(place) as skills:
        put(NEW, skills)
        assert (files_in(place / "bread"), skills.skills) == (NEW, {"bread": installed(NEW)})
        assert read_lock(place).skills == {"bread": installed(NEW)}
        skills.remove("bread")
    assert list(place.iterdir()) == []


def test_no_file_is_executable_and_others_may_read_it(place: Path) -> None:
    modes = {f.stat().st_mode & 0o777 for f in place.rglob("*") if f.is_file()}
    assert modes == {0o644}
    assert {f.stat().st_mode & 0o777 for f in place.rglob("*") if f.is_dir()} == {0o755}


def test_what_a_person_lets_be_executed_stays_so_where_its_bytes_are_theirs(place: Path) -> None:
    for path in ("a.md", "scripts/knead.sh"):
        (place / "bread" / path).chmod(0o755)
    with open_skills_folder(place) as skills:
        skills.put("bread", installed(NEW), NEW, onto=digests_of(OLD))
    modes = {path: (place / "bread" / path).stat().st_mode & 0o111 for path in NEW}
    assert {path for path, mode in modes.items() if mode} == {"a.md"}  # other bytes were never looked at


@pytest.mark.parametrize("tampered", ["node_modules/a.js", ".git/hooks/pre-commit", "link", "mode", "hash"])
def test_what_the_shared_lock_s_hash_leaves_out_differs_wherever_the_skill_lies(
    tmp_path: Path, tampered: str
) -> None:
    skill, here = tmp_path / ".agents/skills/tide", tmp_path / ".claude/skills"
    write(skill, {"SKILL.md": b"x"})
    entry = {"source": "a/b", "computedHash": folder_hash(skill_files(skill))}
    lock = {"version": 1, "dismissed": {"x": 1}, "skills": {"tide": entry}}
    (tmp_path / "skills-lock.json").write_text(json.dumps(lock))
    assert differences(here, tmp_path, [skill.parent]) == {"tide": []}
    if tampered == "link":
        (skill / "link").symlink_to("/etc")
    elif tampered == "mode":
        (skill / "SKILL.md").chmod(0o755)
    elif tampered == "hash":
        change_skills_lock(tmp_path, {"tide": {"source": "a/b"}})
        assert json.loads((tmp_path / "skills-lock.json").read_bytes())["dismissed"] == {"x": 1}
    else:
        write(skill, {tampered: b"x"})
    (edit,) = differences(here, tmp_path, [skill.parent])["tide"]
    told = {"mode": ("SKILL.md", "executable"), "hash": ("skills-lock.json", "hash")}
    assert (edit.path, edit.change) == told.get(tampered, (tampered, "added"))


def test_a_folder_of_others_and_another_document_of_that_name_are_never_touched(
    tmp_path: Path, place: Path
) -> None:
    # A folder of others is never touched.
    others = tmp_path / "others"
    (others / "Bread").mkdir(parents=True)
    with open_skills_folder(others) as skills, pytest.raises(WrongInput, match="not from Skillery"):
        put(NEW, skills)
    assert files_in(others) == {}
    # Another document of that name is refused.
    with open_skills_folder(place) as skills, pytest.raises(WrongInput, match=f"holds {BREAD_ID}"):
        skills.put("bread", installed(NEW, "local/market/other/bread"), NEW)


@pytest.mark.parametrize("pending", [None, Pending("bread", installed(NEW))])
def test_a_link_in_place_of_what_is_being_written_is_taken_away(place: Path, pending: Pending | None) -> None:
    lock = read_lock(place)
    lock.pending = pending
    write_lock(place, lock)
    (place / "bread").rename(place.parent / "old")
    (place / STAGING).symlink_to(place.parent)
    with open_skills_folder(place) as skills:
        put(NEW, skills)
    assert (files_in(place / "bread"), files_in(place.parent / "old")) == (NEW, OLD)


def test_a_link_in_place_of_a_skill_is_an_edit_and_is_not_followed(place: Path, tmp_path: Path) -> None:
    (place / "bread").rename(tmp_path / "elsewhere")
    (place / "bread").symlink_to(tmp_path / "elsewhere")
    with open_skills_folder(place) as skills:
        with pytest.raises(WrongInput, match="missing"):
            put(NEW, skills)
        skills.remove("bread")
    assert files_in(tmp_path / "elsewhere") == OLD


def test_a_skill_that_was_deleted_is_put_again(place: Path) -> None:
    with open_skills_folder(place) as skills:
        for file in sorted(place.rglob("bread/**/*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        (place / "bread").rmdir()
        put(OLD, skills)
    assert files_in(place / "bread") == OLD


def test_one_process_at_a_time_holds_a_folder(place: Path) -> None:
    with open_skills_folder(place), pytest.raises(Locked, match="wait until"), open_skills_folder(place):
        pass


def test_a_folder_that_is_not_there_or_is_a_file_is_named(place: Path) -> None:
    for path in (place / "nowhere", place / LOCK_FILE):
        with pytest.raises(WrongInput, match=str(path)), open_skills_folder(path):
            pass


def test_what_a_program_left_in_the_new_folder_does_not_undo_a_killed_update(place: Path) -> None:
    lock = read_lock(place)
    lock.pending = Pending("bread", installed(NEW))
    write_lock(place, lock)
    delete_path(place / "bread")
    for path, content in (NEW | {"scripts/__pycache__/a.pyc": b"\0"}).items():
        write_new(place / "bread" / path, content)
    with open_skills_folder(place) as skills:
        assert (skills.mended, skills.skills) == ({"bread": "updated"}, {"bread": installed(NEW)})


def run(kind: str, moments: dict[Path, int | None]) -> list[int]:
    """Do work in folders, killed where a moment is given; return the calls of those that ended."""
    given = json.dumps({str(folder): moment for folder, moment in moments.items()})
    command = [sys.executable, "-m", "tests.support.installs", kind, given]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT)
    return [int(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", slow_but({"merge"}, WORK))
def test_a_kill_at_any_call_for_a_file_leaves_the_old_or_the_new_state(kind: str, tmp_path: Path) -> None:
    old, new = (None if kind == "install" else OLD), (None if kind == "remove" else NEW)
    mine = MINE if kind == "merge" else {}

    def prepared(name: str) -> Path:
        with open_skills_folder(tmp_path / name, create=True) as skills:
            if old:
                put(old, skills)
        for path, content in mine.items():
            write_new(tmp_path / name / "bread" / path, content)
        return tmp_path / name

    def left_in(place: Path) -> dict[str, bytes] | None:
        """Return the skill's files, in which a person's are, whatever happened."""
        left = files_in(place / "bread")
        assert left is None or left | mine == left
        return left and {path: content for path, content in left.items() if path not in mine}

    (calls,) = run(kind, {prepared("whole"): None})
    assert left_in(tmp_path / "whole") == new
    assert calls >= AT_LEAST
    places = {prepared(str(moment)): moment for moment in range(calls)}
    assert run(kind, dict(places)) == []

    outcomes = set()
    for place in places:
        if kind != "update by two renames":
            assert left_in(place) in (old, new)
        with open_skills_folder(place) as skills:
            left = left_in(place)
            assert left in (old, new)
            assert skills.skills == ({} if left is None else {"bread": installed(left)})
            assert set(skills.mended) <= {"bread"}
            assert not (place / STAGING).exists()
            assert list(place.glob("*.tmp")) == []
            assert read_lock(place).pending is None
            outcomes.add(left == new)
            if left == old:
                WORK[kind](skills)
        assert left_in(place) == new
    assert outcomes == {True, False}


LINES = st.lists(st.sampled_from(["flour", "water", "salt", "yeast", "", "knead", "bake"]), max_size=8)


def lines_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@examples(max_examples=60)
@given(LINES, LINES, LINES)
def test_either_side_s_lines_survive_or_a_conflict_is_named(
    was: list[str], mine: list[str], new: list[str]
) -> None:
    found, conflicts = merged_files({"a": lines_of(was)}, {"a": lines_of(mine)}, {"a": lines_of(new)})
    if conflicts:
        assert [conflict.path for conflict in conflicts] == ["a"]
        assert found == {"a": lines_of(mine)}
        return
    merged = Counter(found["a"].decode().splitlines())
    for side in (mine, new):
        # What a side has more often than was there before is added, and stays as often at least.
        added = Counter(side) - Counter(was)
        assert all(merged[line] >= count for line, count in added.items())


@pytest.mark.parametrize(
    ("was", "mine", "new", "becomes", "why"),
    [
        (b"a", b"a", b"b", b"b", None),
        (b"a", b"b", b"a", b"b", None),
        (b"a", b"b", b"b", b"b", None),
        (None, b"mine", None, b"mine", None),
        (None, None, b"new", b"new", None),
        (b"a", None, b"a", None, None),
        (b"a", b"a", None, None, None),
        (b"a", None, b"b", None, "removed"),
        (b"a", b"b", None, b"b", "removed"),
        (None, b"b", b"c", b"b", "same lines"),
        (b"a\0", b"b\0", b"c\0", b"b\0", "bytes"),
        (b"a", b"\xff\xfe", b"c", b"\xff\xfe", "bytes"),
    ],
)
def test_a_file_becomes_what_its_sides_make_of_it(
    was: bytes | None, mine: bytes | None, new: bytes | None, becomes: bytes | None, why: str | None
) -> None:
    def files(content: bytes | None) -> dict[str, bytes]:
        return {} if content is None else {"f": content}

    found, conflicts = merged_files(files(was), files(mine), files(new))
    assert found == files(becomes)
    assert [why in one.why for one in conflicts if why] == ([] if why is None else [True])
    if why:
        for side, content in (("ours", mine), ("theirs", new)):
            assert merged_files(files(was), files(mine), files(new), side) == (files(content), [])  # type: ignore[arg-type]


@pytest.mark.parametrize(("mine", "new"), [("a", "a/b"), ("a/b", "a"), ("README.md", "readme.md")])
def test_files_that_no_folder_holds_both_conflict_or_are_the_preferred_side_s(mine: str, new: str) -> None:
    found, conflicts = merged_files({}, {mine: b"mine"}, {new: b"new"})
    assert (found, [one.path for one in conflicts]) == ({mine: b"mine"}, [new])
    assert merged_files({}, {mine: b"mine"}, {new: b"new"}, "theirs") == ({new: b"new"}, [])
    both = {mine: b"1", new: b"2"}  # a person's file system holds them
    assert merged_files({}, both, {}) == (both, [])
