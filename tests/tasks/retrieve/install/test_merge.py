from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tasks.retrieve.install.merge import merged_files

LINES = st.lists(st.sampled_from(["flour", "water", "salt", "yeast", "", "knead", "bake"]), max_size=8)


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@examples(max_examples=60)
@given(LINES, LINES, LINES)
def test_either_side_s_lines_survive_or_a_conflict_is_named(
    was: list[str], mine: list[str], new: list[str]
) -> None:
    found, conflicts = merged_files({"a": text(was)}, {"a": text(mine)}, {"a": text(new)})
    if conflicts:
        assert [conflict.path for conflict in conflicts] == ["a"]
        assert found == {"a": text(mine)}
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
