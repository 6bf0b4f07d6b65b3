"""Unread rows: what a row must be to be read, and what is kept of one that is not."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.induce.trajectories.unread import (
    MOST_CHARACTERS,
    MOST_STEPS,
    NotRead,
    Unread,
    checked,
    object_of,
    unread,
)
from tests.support.induce.rows import PAGE, row, step


def nested(depth: int) -> object:
    value: object = "bean"
    for level in range(depth):
        value = [value] if level % 2 else {"pod": value}
    return value


def reason(given: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(NotRead) as caught:
        checked(given)
    return caught.value.reason, str(caught.value)


@pytest.mark.parametrize("value", [None, [row()], "order", 7])
def test_a_line_that_is_no_object_is_not_read(value: object) -> None:
    with pytest.raises(NotRead, match="no JSON object") as caught:
        object_of(value)
    assert caught.value.reason == "no-object"


def test_objects_in_objects_are_read_up_to_a_depth() -> None:
    assert object_of({"pod": nested(63)})
    for value in (nested(64), nested(5_000)):
        assert reason(row(extra=value))[0] == "too-deep"


def test_a_wrong_field_is_named() -> None:
    assert reason(row(task=7)) == ("wrong-field", "trajectory run-1: task must be a text")


def test_a_run_has_a_thousand_steps_at_most() -> None:
    assert len(checked(row(*[step("wait")] * MOST_STEPS)).steps) == MOST_STEPS
    found = reason(row(*[step("wait")] * (MOST_STEPS + 1)))
    assert found == ("too-many-steps", "it has 1,001 steps, more than 1,000; split it by task")


def test_a_page_over_the_limit_is_named_by_its_step() -> None:
    page = "x" * MOST_CHARACTERS
    assert checked(row(step("order", page), final=page)).final == page

    found, said = reason(row(step("wait"), step("order", page + "x")))
    assert found == "page-too-long"
    assert said.startswith("the observation of step 1: 2,097,153 characters, more than 2,097,152; shorten it")
    assert reason(row(final=page + "x"))[1].startswith("the final observation: ")


def test_a_task_and_arguments_over_the_limit_are_named() -> None:
    text = "x" * (MOST_CHARACTERS + 1)

    assert reason(row(task=text))[0] == "text-too-long"
    assert reason(row(step("order", note=[text])))[1].startswith("args of step 0: ")


def test_an_element_that_is_not_on_the_page_is_named() -> None:
    found = reason(row(step("click", PAGE, element="1"), step("click", PAGE, element="99")))

    assert found[0] == "unknown-element"
    assert found[1].startswith("step 1 acts on element '99', which is not on its page; give the page")


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


@pytest.mark.parametrize("held", [None, "run-1", {}, {"trajectory_id": 7}])
def test_a_row_may_have_no_id(held: object) -> None:
    assert unread("a:1", held, NotRead("wrong-field", "x")) == Unread("a:1", None, "wrong-field", "x")
