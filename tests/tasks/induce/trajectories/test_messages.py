"""Messages: a chat becomes the steps of a domain of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.trajectories.cleaning import cleaned
from tasks.induce.trajectories.messages import row_of
from tasks.induce.trajectories.rows import NotRead, checked

USER = {"role": "user", "content": "Order beans."}


def call(name: str, call_id: str, arguments: object = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def acts(*calls: dict[str, Any], content: object = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def answer(call_id: str, content: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def says(content: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def read(*messages: object, **fields: object) -> dict[str, Any]:
    return row_of({"messages": list(messages), **fields}, "garden")


def seen(found: dict[str, Any]) -> list[str]:
    return [step["observation"] for step in found["steps"]]


def done(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(step["action"]["name"], step["action"]["args"]) for step in found["steps"]]


def test_a_chat_becomes_steps_of_what_came_and_what_was_done() -> None:
    found = read(
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
    found = read(USER, both, answer("b", "bed 3"), answer("a", "b1"), acts(call("plant", "c")))
    assert seen(found) == ["user: Order beans.", "find_seed returned: b1", "find_bed returned: bed 3"]
    assert [step.get("thought") for step in found["steps"]] == ["Let me look.", None, None]
    assert found["final"] == ""


def test_an_answer_belongs_to_the_last_call_with_its_id() -> None:
    found = read(
        USER, acts(call("find_seed", "0")), answer("0", "x"), acts(call("order", "0")), answer("0", "y")
    )
    assert (seen(found)[1], found["final"]) == ("find_seed returned: x", "order returned: y")


def test_what_came_together_stands_together() -> None:
    more = {"role": "user", "content": "And peas."}
    found = read(USER, more, acts(call("order", "1")), answer("1", "done"), more, says("Done."))
    assert seen(found) == ["user: Order beans.\nuser: And peas.", "order returned: done\nuser: And peas."]


def test_an_answer_that_begins_with_error_is_the_error_of_its_step() -> None:
    lost = [acts(call("find_seed", "1")), answer("1", "Error: no such seed")]
    found = read(USER, *lost, says("None."))
    assert [step["error"] for step in found["steps"]] == ["Error: no such seed", None]
    assert seen(found)[1] == "find_seed returned: Error: no such seed"


def test_a_call_may_have_no_answer() -> None:
    found = read(USER, acts(call("order", "1")), says("Done."))
    assert seen(found) == ["user: Order beans.", ""]


def test_an_assistant_that_says_nothing_does_nothing() -> None:
    assert done(read(USER, says(None), says("  "), {"role": "assistant"}, says([]))) == []


def test_parts_of_a_message_are_joined_and_pictures_marked() -> None:
    parts = [{"type": "text", "text": "Order these:"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert read({"role": "user", "content": parts})["task"] == "Order these:\n[image_url]"


@pytest.mark.parametrize("told", ["", None, "{}", {}, " "])
def test_arguments_may_be_empty(told: object) -> None:
    assert done(read(USER, acts(call("order", "1", told)))) == [("order", {})]


def test_ids_domain_and_verdict_are_those_given() -> None:
    found = read(USER, trajectory_id="r", task_id="t", domain="shop", success=False)
    assert [found[name] for name in ("trajectory_id", "task_id", "domain", "success")] == [
        "r", "t", "shop", False,
    ]  # fmt: skip


def test_missing_ids_are_made_of_the_content() -> None:
    first, again, other = read(USER), read(USER, success=True), read(USER, says("Done."))
    elsewhere = row_of({"messages": [USER]}, "shop")
    assert first["trajectory_id"] == again["trajectory_id"] != other["trajectory_id"]
    assert first["task_id"] == other["task_id"] != elsewhere["task_id"]
    assert (first["domain"], first["success"]) == ("garden", None)
    assert checked(first).trajectory_id.startswith("chat-")


@pytest.mark.parametrize("told", ["{", "[1]", '"beans"', "null", '{"a": NaN}', '{"a": "\\ud800"}', 7])
def test_broken_arguments_are_told_with_their_message(told: object) -> None:
    with pytest.raises(NotRead, match="message 1: ") as caught:
        read(USER, acts(call("order", "1", told)))
    assert caught.value.reason == "broken-arguments"


@pytest.mark.parametrize(
    ("messages", "reason", "said"),
    [
        (["hello"], "wrong-message", "message 0: must be an object with a role"),
        ([USER, {"role": "robot", "content": ""}], "wrong-message", "message 1: the role must be"),
        ([{"role": ["user"]}], "wrong-message", "message 0: the role must be"),
        ([{"role": "user", "content": 7}], "wrong-message", "message 0: content must be"),
        ([{"role": "user", "content": ["beans"]}], "wrong-message", "message 0: content must be"),
        (
            [USER, {**says(None), "function_call": {"name": "order"}}],
            "wrong-message",
            "in place of function_call",
        ),
        ([USER, {**says(None), "tool_calls": "order"}], "wrong-message", "tool_calls must be a list"),
        ([USER, acts({"id": "1", "type": "custom"})], "wrong-message", "a call must have a function"),
        ([USER, answer("1", "done")], "unknown-call", "message 1: tool_call_id '1'"),
        ([USER, {"role": "tool", "content": "done"}], "unknown-call", "message 1: tool_call_id 'None'"),
        (
            [USER, acts(call("order", "1")), answer("1", "done"), answer("1", "done")],
            "unknown-call",
            "message 3: tool_call_id '1'",
        ),
        ([], "no-task", "no user says what to do"),
        ([says("Hello")], "no-task", "no user says what to do"),
    ],
)
def test_a_chat_that_cannot_be_followed_is_told(messages: list[object], reason: str, said: str) -> None:
    with pytest.raises(NotRead, match=said) as caught:
        read(*messages)
    assert caught.value.reason == reason


def test_a_chat_has_messages() -> None:
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
        found = read(USER, *messages)
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
