"""Lines: values come with their numbers, and what is broken is told and does not stop the rest."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.trajectories import lines
from tasks.induce.trajectories.lines import read_values
from tasks.induce.trajectories.unread import Unread
from tests.support.induce.rows import lines_of, written


def file(folder: Path, content: bytes) -> Path:
    path = folder / "runs.jsonl"
    path.write_bytes(content)
    return path


def told(path: Path) -> list[object]:
    """Return the number and value of each line; of one that is unread the reason."""
    return [
        (int(place.rpartition(":")[2]), value.reason if isinstance(value, Unread) else value)
        for place, value in read_values(path)
    ]


def test_a_value_comes_with_the_number_of_its_line(tmp_path: Path) -> None:
    path = file(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n\n  \n[2]\n{"a": "\xe2\x80\xa8"}')

    assert told(path) == [(1, {"a": 1}), (4, [2]), (5, {"a": "\u2028"})]


@pytest.mark.parametrize("name", ["runs.jsonl.gz", "runs.jsonl", "runs"])
def test_a_gzipped_file_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(lines_of({"a": 1})) + gzip.compress(lines_of({"a": 2})))

    assert told(path) == [(1, {"a": 1}), (2, {"a": 2})]


def test_a_plain_file_may_be_called_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(lines_of({"a": 1}))

    assert told(path) == [(1, {"a": 1})]


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b'{"a": 1} {"a": 2}',
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b"1" * 5_000,
    ],
)
def test_a_broken_line_is_told_and_the_next_is_read(tmp_path: Path, broken: bytes) -> None:
    path = file(tmp_path, lines_of({"a": 1}) + broken + b"\n" + lines_of({"a": 3}))

    assert told(path) == [(1, {"a": 1}), (2, "broken-line"), (3, {"a": 3})]


def test_a_broken_line_says_where_it_is_and_what_to_do(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"a": 1,}\n')
    ((place, found),) = read_values(path)

    assert isinstance(found, Unread)
    assert (place, found.place, found.trajectory_id) == (f"{path}:1", f"{path}:1", None)
    assert found.detail.startswith("not JSON (")
    assert "write one object" in found.detail


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_line_that_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gzipped: bool
) -> None:
    monkeypatch.setattr(lines, "MOST_LINE", 20)
    held = lines_of({"a": 1}, {"a": "x" * 200_000}, {"a": 3}, {"a": "x" * 30})
    path = file(tmp_path, gzip.compress(held) if gzipped else held)

    assert told(path) == [(1, {"a": 1}), (2, "line-too-long"), (3, {"a": 3}), (4, "line-too-long")]


def test_of_an_archive_that_was_cut_what_is_whole_is_read(tmp_path: Path) -> None:
    held = gzip.compress(lines_of({"a": 1}) + bytes(f'{{"a": "{"".join(map(str, range(9_999)))}"}}', "ascii"))
    found = told(file(tmp_path, held[:-5]))

    assert found[0] == (1, {"a": 1})
    assert found[-1] == (2, "broken-file")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (gzip.compress(b""), "is empty"),
        (b"\x89PNG\0\0", "is no text"),
        ('{"a": 1}'.encode("utf-16"), "is no text"),
        (gzip.compress(b"\0" * 9), "is no text"),
        (b"\x1f\x8b no archive", "cannot be read"),
    ],
    ids=["nothing", "blanks", "archive-of-nothing", "picture", "utf-16", "archive-of-nulls", "no-archive"],
)
def test_a_file_that_is_empty_or_no_text_is_refused_by_name(
    tmp_path: Path, content: bytes, said: str
) -> None:
    with pytest.raises(WrongInput, match=f"runs.jsonl: {said}"):
        list(read_values(file(tmp_path, content)))


def test_a_file_that_is_missing_or_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(WrongInput, match=f"{path}: cannot be read"):
            list(read_values(path))


def test_lines_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.jsonl.gz", *({"a": n} for n in range(50_000)))
    values = read_values(path)

    assert next(values)[1] == {"a": 0}
    values.close()  # type: ignore[attr-defined]


@given(st.binary(max_size=60) | st.binary(max_size=30).map(gzip.compress))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = file(tmp_path_factory.getbasetemp(), content)
    try:
        found = told(path)
    except WrongInput as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert found
