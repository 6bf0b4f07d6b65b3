from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field, write_lines

FORM = "{id}"
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "lines.jsonl"
    path.write_bytes(content)
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_lines(path, FORM)]


@given(st.lists(st.dictionaries(st.text(), VALUES)))
def test_what_was_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, given: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "all.jsonl"
    write_lines(path, given)
    assert records(path) == given
    assert len(path.read_text("utf-8").splitlines()) == len(given)


def test_each_object_comes_with_its_file_and_line_past_a_byte_order_mark(tmp_path: Path) -> None:
    assert records(written(tmp_path, b'\xef\xbb\xbf{"id": 1}\n')) == [{"id": 1}]
    assert records(written(tmp_path, b"\xef\xbb\xbf\n")) == []
    path = written(tmp_path, b'{"id": 1}\n\n  \r\n{"id": 2}\r\n{"id": 3}')
    assert list(read_lines(path, FORM)) == [
        (f"{path}:1", {"id": 1}), (f"{path}:4", {"id": 2}), (f"{path}:5", {"id": 3}),
    ]  # fmt: skip


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_separator_inside_a_text_ends_no_line(tmp_path: Path, separator: str) -> None:
    line = json.dumps({"id": f"a{separator}b"}, ensure_ascii=False)
    assert records(written(tmp_path, line.encode())) == [{"id": f"a{separator}b"}]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{broken", r"not JSON \(Expecting property name .* at column 2\); write one object {id} a line"),
        (b'{"id": NaN}', r"not JSON \(NaN is no number\)"), (b"[" * 100_000, "not JSON"),
        (b'{"id": ' + b"1" * 5000 + b"}", "not JSON"), (b"[1]", "no object; write {id}"),
        (b"null", "no object"), (b'{"id": "\xe9"}', r"not UTF-8 \(byte 9 of the line\)"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"), (b'{"id": "\\ud83d"}', "half a surrogate"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: bytes, problem: str) -> None:
    path = written(tmp_path, b'{"id": "\\ud83d\\ude00"}\n' + line + b"\n")
    with pytest.raises(WrongInput, match=rf"lines\.jsonl:2: {problem}"):
        records(path)


@pytest.mark.parametrize("name", [".", "absent.jsonl"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongInput, match=r"cannot be read .*; give a file of JSON lines {id}"):
        records(tmp_path / name)


@pytest.mark.parametrize("record", [{}, {"id": None}, {"id": 3}])
def test_a_field_without_text_is_named(record: dict[str, Any]) -> None:
    assert text_field({"id": "a"}, "id", "f:1") == "a"
    with pytest.raises(WrongInput, match="f:1: `id` is missing or no text"):
        text_field(record, "id", "f:1")


@pytest.mark.parametrize("error", [WrongInput("stop"), KeyboardInterrupt()])
def test_a_failure_in_between_leaves_the_old_file_alone(tmp_path: Path, error: BaseException) -> None:
    path = written(tmp_path, b"old")

    def some() -> Iterator[dict[str, Any]]:
        yield {"id": 1}
        raise error

    with pytest.raises(type(error)):
        write_lines(path, some())
    assert [p.name for p in tmp_path.iterdir()] == ["lines.jsonl"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("place", ["missing/out.jsonl", "folder", ".", "file/out.jsonl", "pipe", "x" * 300])
def test_a_place_that_cannot_be_written_is_refused_before_any_record(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    asked: list[int] = []

    def record(number: int) -> dict[str, Any]:
        asked.append(number)
        return {"id": number}

    with pytest.raises(WrongInput, match="give a file") as refused:
        write_lines(tmp_path / place, map(record, range(2)))
    assert asked == []
    assert "\n" not in str(refused.value)
    assert sorted(tmp_path.iterdir()) == before
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_disk_that_takes_no_more_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(WrongInput, match=r"out\.jsonl: cannot be written \(File too large\)"):
            write_lines(tmp_path / "out.jsonl", [{"text": "x" * 200}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
