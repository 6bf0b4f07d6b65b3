"""Outlines: which elements a page has, what they are called, and which comes first of those alike."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.trajectories.cleaning import CleanStep, cleaned, is_web
from tasks.induce.trajectories.outline import Element, folded, is_cut, outline_of, without_ids
from tasks.induce.trajectories.record import digest_of, trajectory_of, without_nulls
from tests.support.induce.recordings import PAGE, row, step

LINES = st.lists(
    st.sampled_from(['[1] button "A"', '  [x] link "B \\', "[2] ", '[2] row ""', "...", 'text "t"'])
)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Inbox 19", "inbox"),
        ("Inbox (19)", "inbox"),
        ("19", "19"),
        ("Row 3 4", "row 3"),
        ("  Save_as…  PDF ", "save as pdf"),
        ("★", ""),
        ("Überblick", "überblick"),
    ],
)
def test_a_name_is_folded_to_lower_case_words_without_a_count(name: str, label: str) -> None:
    assert folded(name) == label


@given(st.text())
def test_a_folded_name_has_letters_and_digits_with_single_blanks(name: str) -> None:
    assert re.fullmatch(r"([^\W_]+( [^\W_]+)*)?", folded(name))


def test_only_lines_with_an_id_are_elements() -> None:
    outline = outline_of('text "Shop"\n[1] button "Seeds 12" active\n  [a7] link\n[3]\n[4] button')
    assert outline.elements == {
        "1": Element("1", "button", "seeds", 0),
        "a7": Element("a7", "link", "", 0),
        "4": Element("4", "button", "", 0),
    }


@pytest.mark.parametrize(
    ("line", "label"),
    [("[7] button 'Save'", "save"), ("[7] link 'Ann\\'s shop'", "ann s shop"),
     ("[7] link \"Ann's\"", "ann s"), ("\t\t[7] textbox 'Zip' required: False", "zip"),
     ("[7] menuitem ''", "")],
)  # fmt: skip
def test_a_name_may_stand_in_single_quotes(line: str, label: str) -> None:
    assert outline_of(line).elements["7"].label == label


def test_elements_alike_are_told_apart_by_their_ordinals() -> None:
    outline = outline_of('[1] link "Edit"\n[2] button "Edit"\n[3] link "edit 4"\n[9] link "Edit"')
    assert [outline.elements[i].ordinal for i in ("1", "2", "3", "9")] == [0, 0, 1, 2]
    assert outline.counts == {("link", "edit"): 3, ("button", "edit"): 1}
    assert outline.shows("link", "edit", 2)
    assert not outline.shows("link", "edit", 3)
    assert not outline.shows("row", "edit")


def test_of_two_lines_with_one_id_the_first_is_the_element() -> None:
    outline = outline_of('[1] link "Edit"\n[1] button "Save"')
    assert outline.elements["1"].role == "link"
    assert not outline.shows("button", "save")


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ('[1] link "Beans and pe', ""),
        ('[1] link "Beans\\', ""),
        ('[1] link "Be\\x"', "be x"),
        ('[1] link "Be\\"an\\" tin"', "be an tin"),
        ('[1] link "\\u0042eans"', "beans"),
        ('[1] link "\\ud800eans"', "eans"),
    ],
)
def test_a_name_that_is_cut_or_escaped_wrongly_is_read_as_far_as_it_goes(line: str, label: str) -> None:
    assert outline_of(line).elements["1"].label == label


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b"])
def test_a_separator_inside_a_name_ends_no_line(separator: str) -> None:
    outline = outline_of(f'[1] link "Beans{separator}[2] button"\r\n[3] link "Peas"')
    assert list(outline.elements) == ["1", "3"]
    assert outline.elements["3"].label == "peas"


def test_a_page_is_cut_where_a_line_holds_three_dots() -> None:
    assert is_cut('[1] link "Edit"\n  ...')
    assert not is_cut('[1] link "..."\ntext "Wait..."')


@given(st.text() | LINES.map("\n".join))
def test_any_text_makes_an_outline_whose_counts_are_those_of_its_elements(text: str) -> None:
    outline = outline_of(text)
    assert sum(outline.counts.values()) == len(outline.elements)
    assert all(outline.shows(each.role, each.label, each.ordinal) for each in outline.elements.values())
    assert all(key == each.element_id for key, each in outline.elements.items())


def test_a_page_without_ids_is_the_same_when_it_is_redrawn() -> None:
    page = '[1] list "Plots"\n  [2] link "[3] peas"\ntext "[4] beans"\n...'
    assert without_ids(page) == without_ids(page.replace("[1]", "[a7]").replace("[2]", "[40]"))
    assert without_ids(page) == 'list "Plots"\n  link "[3] peas"\ntext "[4] beans"\n...'


@pytest.mark.parametrize(
    "text", ["\n" * 200_000, "[" * 200_000, '[1] a "' + "\\" * 200_001, " " * 200_000, "[1] " * 50_000]
)
def test_a_long_line_of_signs_takes_no_long_time(text: str) -> None:
    assert len(outline_of(text).elements) <= 1
    assert len(without_ids(text)) <= len(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_all_that_is_known_of_a_run_is_read() -> None:
    found = trajectory_of(row(actor="a person"))
    assert (found.trajectory_id, found.task_id, found.domain) == ("run-1", "order-beans", "garden")
    assert (found.task, found.success) == ("Order beans.", True)
    assert [each.action.name for each in found.steps] == ["find_seed", "order"]
    assert found.steps[1].action.args == {"seed_id": "b1", "packets": 2}
    assert [each.t for each in found.steps] == [0, 1]


def test_what_is_seen_after_a_step_is_what_the_next_one_saw() -> None:
    found = trajectory_of(row())
    assert found.after(0) == 'find_seed returned: {"id": "b1"}'
    assert found.after(1) == "order returned: done"


def test_what_may_be_missing_is_empty() -> None:
    bare = {"observation": "", "action": {"name": "wait"}}
    (found,) = trajectory_of({**row(bare, final=None, task=""), "success": None}).steps
    assert (found.action.args, found.error, found.url, found.title) == ({}, None, "", "")


@pytest.mark.parametrize(
    ("given", "error"), [("", None), (False, None), ("sold out", "sold out"), (404, "404")]
)
def test_an_error_is_a_text_and_an_empty_one_is_none(given: object, error: str | None) -> None:
    (found,) = trajectory_of(row({**step("order"), "error": given})).steps
    assert found.error == error


@pytest.mark.parametrize("name", ["send_msg_to_user", "transfer_to_human_agents", "report_infeasible"])
def test_some_actions_speak_to_a_person(name: str) -> None:
    assert trajectory_of(row(step(name))).steps[0].action.speaks
    assert not trajectory_of(row(step("order"))).steps[0].action.speaks


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trajectory_id": ""}, "trajectory_id must be a text that is not empty"),
        ({"trajectory_id": 7}, "trajectory_id must be a text"),
        ({"task_id": None}, "run-1: task_id must be a text"),
        ({"domain": ["garden"]}, "run-1: domain must be a text"),
        ({"task": None}, "run-1: task must be a text"),
        ({"success": "yes"}, "success must be true, false or null"),
        ({"success": 1}, "success must be true, false or null"),
        ({"steps": None}, "steps must be a list"),
        ({"steps": {}}, "steps must be a list"),
        ({"steps": ["order"]}, "step 0: a step is an object"),
        ({"steps": [{"observation": ""}]}, "step 0: a step is an object"),
        ({"steps": [step("order"), step("two words")]}, "step 1: an action has a name"),
        ({"steps": [{"observation": "", "action": {"name": "order", "args": [1]}}]}, "step 0: an action has"),
        ({"steps": [{"observation": None, "action": {"name": "order"}}]}, "observation must be a text"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongInput, match=said):
        trajectory_of({**row(), **fields})


@given(JSON, st.sampled_from(["", *row(), "extra"]))
def test_any_value_is_read_or_refused(value: object, name: str) -> None:
    given = {**row(), name: value} if name else value
    try:
        found = trajectory_of(given)
    except WrongInput:
        return
    assert found.trajectory_id


def test_one_content_has_one_digest_whatever_the_order_of_its_fields() -> None:
    turned = dict(reversed(row().items()))
    assert digest_of(turned) == digest_of(row()) == digest_of(json.loads(json.dumps(row())))
    assert digest_of(row(final="other")) != digest_of(row())


def test_a_field_that_is_null_counts_as_missing() -> None:
    assert digest_of(row(actor=None)) == digest_of(row())
    assert digest_of(row(success=None)) != digest_of(row())


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_without_nulls_only_null_fields_go(value: dict[str, Any]) -> None:
    found = without_nulls(value)
    assert without_nulls(found) == found
    assert found.keys() == {name for name, each in value.items() if each is not None}
    assert digest_of(found) == digest_of(value)


@pytest.mark.parametrize("numbers", [(0, 0), (-1, 1), (True, 2), ("0", 1), (2**40, 1)])
def test_steps_have_whole_numbers_of_their_own(numbers: tuple[object, object]) -> None:
    steps = [{**step("order"), "t": number} for number in numbers]
    with pytest.raises(WrongInput, match=r"t must be a whole number|the same number"):
        trajectory_of(row(*steps))


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
