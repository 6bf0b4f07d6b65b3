"""Cleaning: which steps are kept, what each acted on, and what a tool gave."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.trajectories.cleaning import CleanStep, cleaned, is_web
from tasks.induce.trajectories.record import trajectory_of
from tests.support.induce.rows import PAGE, row, step

OPENED = PAGE.replace("Seeds", "Close")


def kept(*steps: dict[str, Any], final: str = "") -> list[CleanStep]:
    return cleaned(trajectory_of(row(*steps, final=final)))[0]


def reasons(*steps: dict[str, Any], final: str = "") -> dict[str, int]:
    return dict(cleaned(trajectory_of(row(*steps, final=final)))[1])


def test_a_step_with_an_error_is_left_out() -> None:
    assert reasons(step("order", error="sold out"), step("order", packets=1)) == {"error": 1}


@pytest.mark.parametrize("tool", ["think", "get_input_from_user"])
def test_a_tool_that_does_nothing_outside_the_agent_is_left_out(tool: str) -> None:
    assert reasons(step(tool, thought="beans"), step("order")) == {"inward": 1}


def test_an_action_after_which_the_page_is_the_same_is_left_out() -> None:
    steps = [step("click", PAGE, element="2"), step("click", PAGE, element="1")]
    assert reasons(*steps, final=OPENED) == {"no-change": 1}
    assert [each.t for each in kept(*steps, final=OPENED)] == [1]


def test_a_message_to_a_person_changes_no_page_and_is_kept() -> None:
    said = step("send_msg_to_user", PAGE, text="Which beans?")
    assert reasons(step("click", OPENED, element="1"), said, final=PAGE) == {}


def test_a_tool_that_answers_as_before_did_something() -> None:
    assert reasons(step("order", "order returned: ok"), step("pay", "order returned: ok")) == {}


def test_an_action_equal_to_the_one_kept_before_is_a_repeat() -> None:
    again = [step("order", seed="b1"), step("think"), step("order", seed="b1"), step("order", seed="b2")]
    assert reasons(*again) == {"inward": 1, "repeat": 1}
    assert [each.action.args["seed"] for each in kept(*again)] == ["b1", "b2"]


def test_a_step_of_a_page_has_its_element_and_no_result() -> None:
    (found,) = kept(step("click", PAGE, element="1"), final="click returned: {}")
    assert found.target == ("click", "button", "seeds")
    assert found.outline is not None
    assert found.result is None


def test_an_id_may_be_a_number() -> None:
    (found,) = kept(step("click", PAGE, element=1))
    assert found.target == ("click", "button", "seeds")


def test_an_action_without_an_element_has_a_name_alone() -> None:
    found = kept(step("click", PAGE, element="1"), step("keyboard_press", OPENED, key="Enter"), final=PAGE)
    assert found[1].target == ("keyboard_press", None, None)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ('order returned: {"id": 7}', {"id": 7}),
        ("order returned: [1, 2]", [1, 2]),
        ("order returned: b1", "b1"),
        ("order returned: 12", "12"),
        ("order returned: " + "[" * 100_000, "[" * 100_000),
        ("user: Thanks", None),
        ("pay returned: b1", None),
        ("", None),
    ],
)
def test_the_result_of_a_tool_is_an_object_a_list_or_a_text(answer: str, result: object) -> None:
    (found,) = kept(step("order"), final=answer)
    assert (found.result, found.outline, found.element) == (result, None, None)


def test_a_tool_may_have_an_argument_that_is_called_element() -> None:
    tool = trajectory_of(row(step("melting_point", "user: How hot?", element="Fe")))
    page = trajectory_of(row(step("click", PAGE, element="99")))
    told = trajectory_of(row(step("click", f"open_page returned: x\n{PAGE}", element="1")))
    assert [is_web(each) for each in (tool, page, told)] == [False, True, True]


PAGES = st.sampled_from([PAGE, OPENED, "", "user: [1]"])
STEPS = st.builds(
    step, st.sampled_from(["click", "think", "order", "send_msg_to_user"]), PAGES,
    st.none() | st.just("failed"), element=st.sampled_from(["1", "2", "99", None, 1]),
)  # fmt: skip


@given(st.lists(STEPS, max_size=6), PAGES | st.text())
def test_each_step_is_kept_or_counted_and_none_kept_twice_in_a_row(
    steps: list[dict[str, Any]], final: str
) -> None:
    trajectory = trajectory_of({**row(), "steps": steps, "final": final})
    found, left_out = cleaned(trajectory)
    assert len(found) + left_out.total() == len(steps)
    assert all(one.action != other.action for one, other in pairwise(found))
    assert [each.t for each in found] == sorted({each.t for each in found})
