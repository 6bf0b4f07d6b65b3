from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.retrieve.install.hand_edits import HandEdit, digests_in, hand_edits, said

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


def test_many_edits_are_said_in_a_line() -> None:
    edits = [HandEdit(f"{n}.md", "added") for n in range(7)]
    assert said(edits).endswith("4.md (added) and 2 more")
