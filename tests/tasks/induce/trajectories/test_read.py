"""Reading files and folders: each content once, in order, and all that was not read is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.trajectories.read import Format, Reading, latest, read_trajectories
from tests.support.induce.recordings import PAGE, row, step, written

CHAT = {"messages": [{"role": "user", "content": "Order beans."}, {"role": "assistant", "content": "Done."}]}


def read(*paths: Path, form: Format = "trajectories") -> tuple[list[str], Reading]:
    reading = Reading()
    found = [each.trajectory_id for _, each in read_trajectories(paths, form, reading)]
    return found, reading


def one(trajectory_id: str, **fields: object) -> dict[str, Any]:
    return row(trajectory_id=trajectory_id, **fields)


def test_each_trajectory_comes_with_its_row(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.jsonl", row(actor="Ann"))
    reading = Reading()
    ((held, found),) = read_trajectories([path], "trajectories", reading)
    assert held == row(actor="Ann")
    assert found.trajectory_id == "run-1"
    assert (reading.read, reading.repeated, reading.unread) == (1, 0, [])


def test_files_come_as_given_and_those_of_a_folder_by_their_paths(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    written(folder / "b.jsonl", one("b"))
    written(folder / "a" / "z.jsonl.gz", one("z"))
    written(folder / "notes.json", one("n"))
    pl.DataFrame([one("p")]).write_parquet(folder / "c.parquet")
    first = written(tmp_path / "first.txt", one("f"))
    assert read(first, folder)[0] == ["f", "z", "b", "p"]


def test_a_file_is_known_as_parquet_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    pl.DataFrame([one("p")]).write_parquet(path)
    assert read(path)[0] == ["p"]


def test_what_is_not_read_is_told_by_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path / "runs.jsonl",
        one("a"), [1], one("b", task=None), one("c", steps=[step("click", PAGE, element="99")]), one("d"),
    )  # fmt: skip
    with path.open("ab") as file:
        file.write(b"{\n")
    found, reading = read(path)
    assert found == ["a", "d"]
    assert [(each.place, each.trajectory_id, each.reason) for each in reading.unread] == [
        (f"{path}:2", None, "no-object"),
        (f"{path}:3", "b", "wrong-field"),
        (f"{path}:4", "c", "unknown-element"),
        (f"{path}:6", None, "broken-line"),
    ]
    assert reading.reasons == {"no-object": 1, "wrong-field": 1, "unknown-element": 1, "broken-line": 1}


def test_one_content_twice_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.jsonl", one("a"), one("a"))
    pl.DataFrame([one("a")]).write_parquet(tmp_path / "runs.parquet")
    found, reading = read(path, tmp_path)
    assert found == ["a"]
    assert (reading.read, reading.repeated, reading.unread) == (1, 4, [])


def test_of_two_contents_with_one_id_the_first_is_read(tmp_path: Path) -> None:
    first = written(tmp_path / "a.jsonl", one("a"), one("b"))
    second = written(tmp_path / "b.jsonl", one("a", final="other"), one("b"))
    found, reading = read(first, second)
    assert found == ["a", "b"]
    assert (reading.repeated, dict(reading.reasons)) == (1, {"two-contents": 1})
    assert (reading.unread[0].place, reading.unread[0].trajectory_id) == (f"{second}:1", "a")


def test_what_an_earlier_reading_read_is_not_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one("a"))
    _, earlier = read(path)
    written(path, one("a"), one("b"))
    reading = Reading(digests=earlier.digests)
    assert [each.trajectory_id for _, each in read_trajectories([path], "trajectories", reading)] == ["b"]
    assert (reading.read, reading.repeated) == (1, 1)


def test_chats_are_read_from_lines_and_parquet(tmp_path: Path) -> None:
    lines = written(tmp_path / "a.jsonl", CHAT, {**CHAT, "messages": []}, {**CHAT, "trajectory_id": "own"})
    call = {"id": "1", "function": {"name": "order", "arguments": '{"packets": 2}'}}
    asked = [CHAT["messages"][0], {"role": "assistant", "content": None, "tool_calls": [call]}]
    table = tmp_path / "b.parquet"
    pl.DataFrame([{"trajectory_id": "p", "messages": asked}]).write_parquet(table)
    reading = Reading()
    found = [each for _, each in read_trajectories([lines, table], "messages", reading, "garden")]
    assert [each.trajectory_id for each in found[1:]] == ["own", "p"]
    assert {each.domain for each in found} == {"garden"}
    assert found[2].steps[0].action.args == {"packets": 2}
    assert reading.reasons == {"no-task": 1}


def test_arguments_that_are_too_deep_as_a_text_are_told(tmp_path: Path) -> None:
    call = {"id": "1", "function": {"name": "order", "arguments": '{"a": ' * 70 + "1" + "}" * 70}}
    path = written(
        tmp_path / "a.jsonl", {"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": [call]}]}
    )
    assert read(path, form="messages")[1].reasons == {"too-deep": 1}


def test_a_path_that_is_missing_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"none\.jsonl: is missing"):
        read_trajectories(
            [written(tmp_path / "a.jsonl", row()), tmp_path / "none.jsonl"], "trajectories", Reading()
        )


def test_a_folder_without_trajectories_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "notes.json", row())
    with pytest.raises(WrongInput, match=r"has no \*.jsonl, \*.jsonl.gz, \*.parquet"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_an_empty_file_is_refused_where_it_is_named_and_told_where_a_folder_holds_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    written(tmp_path / "b.jsonl", row())
    with pytest.raises(WrongInput, match=name):
        read(tmp_path / name)
    found, reading = read(tmp_path)
    assert found == ["run-1"]
    assert [(each.place, each.reason) for each in reading.unread] == [(str(tmp_path / name), "broken-file")]


ROWS = st.builds(one, st.sampled_from("ab"), final=st.sampled_from(["x", "y"])) | st.sampled_from(
    [1, {}, "no"]
)


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_each_line_is_read_repeated_or_told(
    tmp_path_factory: pytest.TempPathFactory, given: list[object]
) -> None:
    found, reading = read(written(tmp_path_factory.getbasetemp() / "runs.jsonl", *given))
    assert reading.read + reading.repeated + len(reading.unread) == len(given)
    assert len(found) == len(set(found)) == reading.read


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        (None, True, (1, 1, 0)),
        (None, False, (1, 1, 0)),
        (True, None, (1, 0, 1)),
        (False, None, (1, 0, 1)),
        (None, None, (1, 0, 1)),
    ],
)
def test_a_verdict_that_comes_later_is_read_and_stays(
    tmp_path: Path, first: bool | None, second: bool | None, counts: tuple[int, int, int]
) -> None:
    path = written(tmp_path / "a.jsonl", one("a", success=first), one("b"), one("a", success=second))
    reading = Reading()
    found = latest(read_trajectories([path], "trajectories", reading))
    assert (reading.read - 1, reading.judged, reading.repeated) == counts
    assert reading.unread == []
    verdict = first if second is None else second
    assert [(own.trajectory_id, own.success) for _, own in found] == [("a", verdict), ("b", True)]
