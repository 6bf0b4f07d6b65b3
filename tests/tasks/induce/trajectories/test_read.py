"""Reading files, folders and chats: each content once, in order, and all that was not read is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.trajectories.cleaning import cleaned
from tasks.induce.trajectories.messages import row_of
from tasks.induce.trajectories.read import Format, Reading, latest, read_trajectories
from tasks.induce.trajectories.rows import NotRead, checked
from tests.support.induce.recordings import PAGE, row, step, written

CHAT = {"messages": [{"role": "user", "content": "Order beans."}, {"role": "assistant", "content": "Done."}]}


def read(*paths: Path, form: Format = "trajectories") -> tuple[list[str], Reading]:
    reading = Reading()
    found = [each.trajectory_id for _, each in read_trajectories(paths, form, reading)]
    return found, reading


def one(trajectory_id: str, **fields: object) -> dict[str, Any]:
    return row(trajectory_id=trajectory_id, **fields)


def test_files_come_as_given_and_those_of_a_folder_by_their_paths(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    written(folder / "b.jsonl", one("b"))
    written(folder / "a" / "z.jsonl.gz", one("z"))
    written(folder / "notes.json", one("n"))
    for name in ("c.parquet", "d.jsonl"):  # which is known by its content
        pl.DataFrame([one(name[0])]).write_parquet(folder / name)
    first = written(tmp_path / "first.txt", one("f"))
    assert read(first, folder)[0] == ["f", "z", "b", "c", "d"]


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


def test_one_content_is_read_once_and_of_two_with_one_id_the_first(tmp_path: Path) -> None:
    first = written(tmp_path / "a.jsonl", one("a"), one("b"))
    second = written(tmp_path / "b.jsonl", one("a", final="other"), one("b"))
    pl.DataFrame([one("a")]).write_parquet(tmp_path / "c.parquet")
    found, reading = read(first, tmp_path)
    assert found == ["a", "b"]
    assert (reading.read, reading.repeated, dict(reading.reasons)) == (2, 4, {"two-contents": 1})
    assert (reading.unread[0].place, reading.unread[0].trajectory_id) == (f"{second}:1", "a")
    assert reading.redacted == 0
    later = Reading(digests=reading.digests)  # of what an earlier reading read
    written(first, one("a"), one("c"))
    assert [each.trajectory_id for _, each in read_trajectories([first], "trajectories", later)] == ["c"]


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


def test_a_folder_without_trajectories_and_a_path_that_is_missing_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "notes.json", row())
    with pytest.raises(WrongInput, match=r"has no \*.jsonl, \*.jsonl.gz, \*.parquet"):
        read(tmp_path)
    lines = written(tmp_path / "a.jsonl", row())
    with pytest.raises(WrongInput, match=r"none\.jsonl: is missing"):  # before anything is read
        read_trajectories([lines, tmp_path / "none.jsonl"], "trajectories", Reading())


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


USER = {"role": "user", "content": "Order beans."}


def call(name: str, call_id: str, arguments: object = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def acts(*calls: dict[str, Any], content: object = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def answer(call_id: str, content: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def says(content: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def of_chat(*messages: object, **fields: object) -> dict[str, Any]:
    return row_of({"messages": list(messages), **fields}, "garden")


def seen(found: dict[str, Any]) -> list[str]:
    return [step["observation"] for step in found["steps"]]


def done(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(step["action"]["name"], step["action"]["args"]) for step in found["steps"]]


def test_a_chat_becomes_steps_of_what_came_and_what_was_done() -> None:
    found = of_chat(
        {"role": "system", "content": "You sell seeds."}, USER,
        acts(call("find_seed", "1", '{"name": "beans"}')), answer("1", '{"id": "b1"}'), says("Two packets?"),
        {"role": "user", "content": "Yes."}, acts(call("order", "2", '{"seed_id": "b1", "packets": 2}')),
        answer("2", "done"), says("It is on its way."), {"role": "user", "content": "Thanks!"},
    )  # fmt: skip

    assert found["task"] == "Order beans."
    assert seen(found) == [
        "user: Order beans.",
        'find_seed returned: {"id": "b1"}',
        "user: Yes.",
        "order returned: done",
    ]
    assert done(found) == [
        ("find_seed", {"name": "beans"}),
        ("send_msg_to_user", {"text": "Two packets?"}),
        ("order", {"seed_id": "b1", "packets": 2}),
        ("send_msg_to_user", {"text": "It is on its way."}),
    ]
    assert [step["t"] for step in found["steps"]] == [0, 1, 2, 3]
    assert found["final"] == "user: Thanks!"
    assert cleaned(checked(found))[0][0].result == {"id": "b1"}


def test_several_calls_of_a_message_are_several_steps_each_with_its_answer() -> None:
    both = acts(call("find_seed", "a"), call("find_bed", "b"), content="Let me look.")
    found = of_chat(USER, both, answer("b", "bed 3"), answer("a", "b1"), acts(call("plant", "c")))
    assert seen(found) == ["user: Order beans.", "find_seed returned: b1", "find_bed returned: bed 3"]
    assert [step.get("thought") for step in found["steps"]] == ["Let me look.", None, None]
    assert found["final"] == ""


MORE = {"role": "user", "content": "And peas."}
ORDERED = acts(call("order", "1"))


@pytest.mark.parametrize(
    ("messages", "observed"),
    [
        pytest.param(
            [acts(call("find_seed", "0")), answer("0", "x"), acts(call("order", "0")), answer("0", "y")],
            ["user: Order beans.", "find_seed returned: x", "order returned: y"],
            id="an answer belongs to the last call with its id",
        ),
        pytest.param(
            [MORE, ORDERED, answer("1", "done"), MORE, says("Done.")],
            ["user: Order beans.\nuser: And peas.", "order returned: done\nuser: And peas.", ""],
            id="what came together stands together",
        ),
        pytest.param([ORDERED, says("Done.")], ["user: Order beans.", "", ""], id="a call without an answer"),
        pytest.param(
            [says(None), says("  "), {"role": "assistant"}, says([])], ["user: Order beans."],
            id="an assistant that says nothing does nothing",
        ),
    ],
)  # fmt: skip
def test_each_step_sees_what_came_since_the_one_before(messages: list[object], observed: list[str]) -> None:
    found = of_chat(USER, *messages)
    assert [*seen(found), found["final"]] == observed


def test_an_answer_that_begins_with_error_is_the_error_of_its_step() -> None:
    found = of_chat(USER, ORDERED, answer("1", "Error: no such seed"), says("None."))
    assert [step["error"] for step in found["steps"]] == ["Error: no such seed", None]
    assert seen(found)[1] == "order returned: Error: no such seed"


def test_parts_of_a_message_are_joined_and_pictures_marked() -> None:
    parts = [{"type": "text", "text": "Order these:"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert of_chat({"role": "user", "content": parts})["task"] == "Order these:\n[image_url]"


@pytest.mark.parametrize("told", ["", None, "{}", {}, " "])
def test_arguments_may_be_empty(told: object) -> None:
    assert done(of_chat(USER, acts(call("order", "1", told)))) == [("order", {})]


def test_missing_ids_are_made_of_the_content() -> None:
    own = {"trajectory_id": "r", "task_id": "t", "domain": "shop", "success": False}
    assert own.items() <= of_chat(USER, **own).items()
    first, again, other = of_chat(USER), of_chat(USER, success=True), of_chat(USER, says("Done."))
    elsewhere = row_of({"messages": [USER]}, "shop")
    assert first["trajectory_id"] == again["trajectory_id"] != other["trajectory_id"]
    assert first["task_id"] == other["task_id"] != elsewhere["task_id"]
    assert (first["domain"], first["success"]) == ("garden", None)
    assert checked(first).trajectory_id.startswith("chat-")


@pytest.mark.parametrize("told", ["{", "[1]", '"beans"', "null", '{"a": NaN}', '{"a": "\\ud800"}', 7])
def test_broken_arguments_are_told_with_their_message(told: object) -> None:
    with pytest.raises(NotRead, match="message 1: ") as caught:
        of_chat(USER, acts(call("order", "1", told)))
    assert caught.value.reason == "broken-arguments"


@pytest.mark.parametrize(
    ("messages", "reason", "said"),
    [
        (["hello"], "wrong-message", "message 0: must be an object with a role"),
        ([USER, {"role": "robot", "content": ""}], "wrong-message", "message 1: the role must be"),
        ([{"role": ["user"]}], "wrong-message", "message 0: the role must be"),
        ([{"role": "user", "content": 7}], "wrong-message", "message 0: content must be"),
        ([{"role": "user", "content": ["beans"]}], "wrong-message", "message 0: content must be"),
        ([USER, {**says(None), "function_call": {"name": "a"}}], "wrong-message", "place of function_call"),
        ([USER, {**says(None), "tool_calls": "order"}], "wrong-message", "tool_calls must be a list"),
        ([USER, acts({"id": "1", "type": "custom"})], "wrong-message", "a call must have a function"),
        ([USER, answer("1", "done")], "unknown-call", "message 1: tool_call_id '1'"),
        ([USER, {"role": "tool", "content": "done"}], "unknown-call", "message 1: tool_call_id 'None'"),
        ([USER, ORDERED, *[answer("1", "done")] * 2], "unknown-call", "message 3: tool_call_id '1'"),
        ([], "no-task", "no user says what to do"),
        ([says("Hello")], "no-task", "no user says what to do"),
    ],
)
def test_a_chat_that_cannot_be_followed_is_told(messages: list[object], reason: str, said: str) -> None:
    with pytest.raises(NotRead, match=said) as caught:
        of_chat(*messages)
    assert caught.value.reason == reason
    with pytest.raises(NotRead, match="messages must be a list"):
        row_of({"messages": None}, "garden")


SAID = st.builds(says, st.text(max_size=5) | st.none())
ASKED = st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=5))
CALLED = st.builds(
    lambda ids: acts(*[call("order", one, json.dumps({"n": one})) for one in ids]),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
)
ANSWERED = st.builds(answer, st.sampled_from("abc"), st.sampled_from(["done", "Error: sold out", ""]))


@given(st.lists(SAID | ASKED | CALLED | ANSWERED, max_size=8))
def test_no_call_no_answer_and_no_word_of_a_user_is_lost(messages: list[dict[str, Any]]) -> None:
    try:
        found = of_chat(USER, *messages)
    except NotRead as error:
        assert error.reason == "unknown-call"  # noqa: PT017
        return
    everything = "\n".join([*seen(found), found["final"]])
    assert len(checked(found).steps) == sum(
        len(one.get("tool_calls", ())) or bool(one["role"] == "assistant" and (one["content"] or "").strip())
        for one in messages
    )
    assert everything.count("user: ") == 1 + sum(one["role"] == "user" for one in messages)
    assert everything.count("order returned: ") == sum(one["role"] == "tool" for one in messages)
