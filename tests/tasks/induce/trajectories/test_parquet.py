"""Parquet: the same rows as in lines, whatever the form of their arguments."""

from __future__ import annotations

import datetime
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
from tasks.induce.trajectories.parquet import read_rows
from tasks.induce.trajectories.record import digest_of
from tasks.induce.trajectories.unread import Unread, checked
from tests.support.induce.rows import row, step

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


def file(folder: Path, *rows: dict[str, Any]) -> Path:
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
    path = file(tmp_path, with_args(row(), form), with_args(row(trajectory_id="run-2"), form))
    found = list(read_rows(path))

    assert [place for place, _ in found] == [f"{path}:1", f"{path}:2"]
    assert args_of(found[0][1]) == ORDERED
    assert digest_of(found[0][1]) == digest_of(row())  # type: ignore[arg-type]
    assert checked(found[1][1]).trajectory_id == "run-2"  # type: ignore[arg-type]


def test_arguments_may_be_a_list_of_keys_and_values(tmp_path: Path) -> None:
    (found,) = read(file(tmp_path, with_args(row(), pairs)))

    assert args_of(found) == [{"name": "beans"}, {"seed_id": "b1", "packets": "2"}]


def test_arguments_may_be_a_map(tmp_path: Path) -> None:
    action = pa.struct([("name", pa.string()), ("args", pa.map_(pa.string(), pa.string()))])
    steps = pa.list_(pa.struct([("observation", pa.string()), ("action", action)]))
    held = [[{"observation": "", "action": {"name": "order", "args": [("seed_id", "b1")]}}]]
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table({"trajectory_id": ["run-1"], "steps": pa.array(held, steps)}), path)

    assert args_of(read(path)[0]) == [{"seed_id": "b1"}]


def test_a_field_that_a_step_does_not_have_becomes_no_argument(tmp_path: Path) -> None:
    bed = step("plant", bed={"row": 1, "depth": None, "marks": [{"a": 1}, {"b": 2}]})
    (found,) = read(file(tmp_path, row(bed, step("wait"), step("plant", bed={"depth": 3}))))

    assert args_of(found) == [{"bed": {"row": 1, "marks": [{"a": 1}, {"b": 2}]}}, {}, {"bed": {"depth": 3}}]


def test_a_null_that_is_meant_is_given_as_json_text(tmp_path: Path) -> None:
    (found,) = read(file(tmp_path, with_args(row(step("plant", bed=None)), json.dumps)))

    assert args_of(found) == [{"bed": None}]


def test_what_json_has_no_form_for_becomes_a_text_or_is_missing(tmp_path: Path) -> None:
    sown = step("plant", on=datetime.date(2026, 3, 1), depth=math.nan, rows=1.5, mild=True)
    (found,) = read(file(tmp_path, row(sown)))

    assert args_of(found) == [{"on": "2026-03-01", "rows": 1.5, "mild": True}]


@pytest.mark.parametrize("text", ["{", "[1]", '"beans"', '{"a": NaN}', "[" * 100_000])
def test_broken_arguments_are_told_and_the_next_row_is_read(tmp_path: Path, text: str) -> None:
    broken = with_args(row(step("order")), lambda _: text)
    whole = with_args(row(step("order", name="b"), trajectory_id="run-2"), json.dumps)
    first, second = read(file(tmp_path, broken, whole))

    assert isinstance(first, Unread)
    assert (first.trajectory_id, first.reason) == ("run-1", "broken-arguments")
    assert args_of(second) == [{"name": "b"}]


def test_a_list_of_other_things_than_pairs_is_told(tmp_path: Path) -> None:
    (found,) = read(file(tmp_path, with_args(row(step("order")), lambda _: ["beans"])))

    assert found.reason == "broken-arguments"


def test_a_row_without_steps_is_left_to_the_checks(tmp_path: Path) -> None:
    (found,) = read(file(tmp_path, {"trajectory_id": "run-1", "steps": "none"}))

    assert found == {"trajectory_id": "run-1"}


@pytest.mark.parametrize("content", [b"", b"no Parquet", b"PAR1" * 9])
def test_a_file_that_is_no_parquet_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.parquet"
    path.write_bytes(content)
    with pytest.raises(WrongInput, match=r"runs\.parquet: cannot be read as Parquet"):
        read(path)


def test_a_file_that_is_missing_or_empty_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"none\.parquet: cannot be read"):
        read(tmp_path / "none.parquet")
    path = tmp_path / "runs.parquet"
    pl.DataFrame({"trajectory_id": []}).write_parquet(path)
    with pytest.raises(WrongInput, match=r"runs\.parquet: is empty"):
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
        (found,) = read(file(folder, with_args(own, form)))
        assert args_of(found) == given
