"""Rows of lines and of Parquet files, and which of them are not read."""

from __future__ import annotations

import datetime
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.trajectories import rows
from tasks.induce.trajectories.record import digest_of
from tasks.induce.trajectories.rows import (
    MOST_CHARACTERS,
    MOST_STEPS,
    NotRead,
    Unread,
    checked,
    object_of,
    read_rows,
    read_values,
    unread,
)
from tests.support.induce.recordings import PAGE, lines_of, row, step


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


@pytest.mark.parametrize(
    "broken",
    [
        b"{", b'{"a": 1} {"a": 2}', b'{"a": NaN}', b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"[" * 100_000,
        b"1" * 5_000,
    ],
)  # fmt: skip
def test_a_broken_line_is_told_and_the_next_is_read(tmp_path: Path, broken: bytes) -> None:
    path = file(tmp_path, lines_of({"a": 1}) + broken + b"\n" + lines_of({"a": 3}))
    assert told(path) == [(1, {"a": 1}), (2, "broken-line"), (3, {"a": 3})]
    _, (place, found), _ = read_values(path)
    assert isinstance(found, Unread)
    assert (place, found.place, found.trajectory_id) == (f"{path}:2", f"{path}:2", None)


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_line_that_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gzipped: bool
) -> None:
    monkeypatch.setattr(rows, "MOST_LINE", 20)
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


@given(st.binary(max_size=60) | st.binary(max_size=30).map(gzip.compress))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = file(tmp_path_factory.getbasetemp(), content)
    try:
        found = told(path)
    except WrongInput as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert found


NAMES, TEXTS = st.text(min_size=1, max_size=4), st.text(max_size=4)


def with_args(given: dict[str, Any], form: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return a row whose arguments have another form."""
    steps = [
        {**one, "action": {"name": one["action"]["name"], "args": form(one["action"]["args"])}}
        for one in given["steps"]
    ]
    return {**given, "steps": steps}


def pairs(args: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": str(value)} for key, value in args.items()]


def parquet_file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "runs.parquet"
    pl.DataFrame(list(rows), infer_schema_length=None).write_parquet(path)
    return path


def read(path: Path) -> list[Any]:
    return [value for _, value in read_rows(path)]


def args_of(value: Any) -> list[Any]:  # noqa: ANN401
    return [one["action"]["args"] for one in value["steps"]]


ORDERED = [{"name": "beans"}, {"seed_id": "b1", "packets": 2}]


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["struct", "text"])
def test_a_row_is_that_of_the_lines(tmp_path: Path, form: Callable[[dict[str, Any]], object]) -> None:
    path = parquet_file(tmp_path, with_args(row(), form), with_args(row(trajectory_id="run-2"), form))
    found = list(read_rows(path))
    assert [place for place, _ in found] == [f"{path}:1", f"{path}:2"]
    assert args_of(found[0][1]) == ORDERED
    assert digest_of(found[0][1]) == digest_of(row())  # type: ignore[arg-type]
    assert checked(found[1][1]).trajectory_id == "run-2"  # type: ignore[arg-type]


def test_arguments_may_be_a_map(tmp_path: Path) -> None:
    action = pa.struct([("name", pa.string()), ("args", pa.map_(pa.string(), pa.string()))])
    steps = pa.list_(pa.struct([("observation", pa.string()), ("action", action)]))
    held = [[{"observation": "", "action": {"name": "order", "args": [("seed_id", "b1")]}}]]
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table({"trajectory_id": ["run-1"], "steps": pa.array(held, steps)}), path)
    assert args_of(read(path)[0]) == [{"seed_id": "b1"}]


def test_a_field_that_a_step_does_not_have_becomes_no_argument(tmp_path: Path) -> None:
    bed = step("plant", bed={"row": 1, "depth": None, "marks": [{"a": 1}, {"b": 2}]})
    (found,) = read(parquet_file(tmp_path, row(bed, step("wait"), step("plant", bed={"depth": 3}))))
    assert args_of(found) == [{"bed": {"row": 1, "marks": [{"a": 1}, {"b": 2}]}}, {}, {"bed": {"depth": 3}}]


def test_a_null_that_is_meant_is_given_as_json_text(tmp_path: Path) -> None:
    (found,) = read(parquet_file(tmp_path, with_args(row(step("plant", bed=None)), json.dumps)))
    assert args_of(found) == [{"bed": None}]


def test_what_json_has_no_form_for_becomes_a_text_or_is_missing(tmp_path: Path) -> None:
    sown = step("plant", on=datetime.date(2026, 3, 1), depth=math.nan, rows=1.5, mild=True)
    (found,) = read(parquet_file(tmp_path, row(sown)))
    assert args_of(found) == [{"on": "2026-03-01", "rows": 1.5, "mild": True}]


@pytest.mark.parametrize("text", ["{", "[1]", '"beans"', '{"a": NaN}', "[" * 100_000])
def test_broken_arguments_are_told_and_the_next_row_is_read(tmp_path: Path, text: str) -> None:
    broken = with_args(row(step("order")), lambda _: text)
    whole = with_args(row(step("order", name="b"), trajectory_id="run-2"), json.dumps)
    first, second = read(parquet_file(tmp_path, broken, whole))
    assert isinstance(first, Unread)
    assert (first.trajectory_id, first.reason) == ("run-1", "broken-arguments")
    assert args_of(second) == [{"name": "b"}]
    (bare,) = read(parquet_file(tmp_path, {"trajectory_id": "run-1", "steps": "none"}))
    assert bare == {"trajectory_id": "run-1"}  # left to the checks


@pytest.mark.parametrize("content", [b"", b"no Parquet", b"PAR1" * 9])
def test_a_file_that_is_no_parquet_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.parquet"
    path.write_bytes(content)
    with pytest.raises(WrongInput, match=r"runs\.parquet: cannot be read as Parquet"):
        read(path)


def test_where_a_file_is_damaged_the_rest_is_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    pl.DataFrame([row(trajectory_id=f"run-{n}") for n in range(40)]).write_parquet(path, row_group_size=20)
    held = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).dictionary_page_offset
    held[start : start + 40] = b"\xff" * 40
    path.write_bytes(held)
    *whole, last = read(path)
    assert [each["trajectory_id"] for each in whole] == [f"run-{n}" for n in range(len(whole))]
    assert last.reason == "broken-file"


@given(st.lists(st.dictionaries(NAMES, TEXTS, max_size=3), min_size=1, max_size=4))
def test_arguments_of_texts_come_back_in_every_form(
    tmp_path_factory: pytest.TempPathFactory, given: list[dict[str, str]]
) -> None:
    own = row(*[{**step("order"), "action": {"name": "order", "args": args}} for args in given])
    folder = tmp_path_factory.getbasetemp()
    for form in (json.dumps, pairs):
        (found,) = read(parquet_file(folder, with_args(own, form)))
        assert args_of(found) == given


def nested(depth: int) -> object:
    value: object = "bean"
    for level in range(depth):
        value = [value] if level % 2 else {"pod": value}
    return value


def reason(given: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(NotRead) as caught:
        checked(given)
    return caught.value.reason, str(caught.value)


def test_objects_alone_are_read_and_those_within_up_to_a_depth() -> None:
    for value in (None, [row()], "order", 7):
        with pytest.raises(NotRead, match="no JSON object"):
            object_of(value)
    assert object_of({"pod": nested(63)})
    for value in (nested(64), nested(5_000)):
        assert reason(row(extra=value))[0] == "too-deep"


LONG = "x" * MOST_CHARACTERS


@pytest.mark.parametrize(
    ("given", "why", "said"),
    [
        (
            row(*[step("wait")] * (MOST_STEPS + 1)), "too-many-steps",
            "it has 1,001 steps, more than 1,000; split it by task",
        ),
        (
            row(step("wait"), step("order", LONG + "x")), "page-too-long",
            "the observation of step 1: 2,097,153 characters, more than 2,097,152; shorten it",
        ),
        (row(final=LONG + "x"), "page-too-long", "the final observation: "),
        (row(task=LONG + "x"), "text-too-long", "the task: "),
        (row(step("order", note=[LONG + "x"])), "text-too-long", "args of step 0: "),
        (
            row(step("click", PAGE, element="1"), step("click", PAGE, element="99")), "unknown-element",
            "step 1 acts on element '99', which is not on its page; give the page",
        ),
    ],
    ids=["steps", "a page", "the last page", "the task", "arguments", "an element that is not there"],
)  # fmt: skip
def test_what_is_too_long_or_not_there_is_named(given: dict[str, Any], why: str, said: str) -> None:
    found = reason(given)
    assert found[0] == why
    assert found[1].startswith(said)


def test_what_is_just_short_enough_is_read() -> None:
    assert checked(row(step("order", LONG), final=LONG)).final == LONG
    assert len(checked(row(*[step("wait")] * MOST_STEPS)).steps) == MOST_STEPS


@pytest.mark.parametrize(
    "one",
    [
        step("click", PAGE, element="2"),
        step("click", PAGE, element=2),
        step("click", PAGE, error="Timeout", element="99"),
        step("click", f"{PAGE}\n...", element="99"),
        step("order", "user: Iron, please.", element="Fe"),
        step("scroll", PAGE, by=3),
    ],
    ids=["on-the-page", "as-a-number", "with-an-error", "behind-a-cut", "of-a-tool", "of-none"],
)
def test_an_element_may_be_elsewhere_where_that_can_be(one: dict[str, Any]) -> None:
    assert checked(row(one)).steps


def test_of_a_row_that_is_not_read_place_id_reason_and_detail_are_kept() -> None:
    error = NotRead("wrong-field", "runs.jsonl:3: task must be a text" + "!" * 1_000)
    found = unread("runs.jsonl:3", row(), error)
    assert (found.place, found.trajectory_id, found.reason) == ("runs.jsonl:3", "run-1", "wrong-field")
    assert found.detail.startswith("task must be a text!")
    assert len(found.detail) == 500
    for held in (None, "run-1", {}, {"trajectory_id": 7}):
        assert unread("a:1", held, NotRead("no-id", "x")) == Unread("a:1", None, "no-id", "x")
