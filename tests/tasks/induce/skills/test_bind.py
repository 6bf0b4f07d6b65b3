"""Arguments of windows are bound to what they come from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.skills.actions import GRANULARITIES, KEY, Arg, Body, Find, Granularity, Result, checked
from tasks.induce.skills.windows import (
    at_path,
    bodies,
    is_general,
    is_known,
    leaves,
    misfit,
    names,
    paths_to,
    same,
    stands_in,
    windows,
)
from tasks.induce.trajectories.record import Trajectory
from tests.support.induce.runs import (
    BEDS,
    FORM,
    HOME,
    JSON,
    TOOL_RUNS,
    Call,
    add_bed,
    call,
    kept,
    mooring,
    page,
    press,
    tool_run,
    web_run,
    web_runs,
)

BERTHS = {"north": {"berths": [{"code": "B7", "free": True}, {"code": "B9", "free": False}]}, "fee": 40}


@pytest.mark.parametrize(
    ("value", "text", "stands"),
    [
        ("B7", "berth b7 is free", True),
        ("B7", "berth B70 is free", False),
        ("fern corner", 'the "Fern-Corner"!', True),
        ("corner fern", "Fern corner", False),
        (40, "the fee is 40.", True),
        (4.5, "4.5 metres", True),
        ("", "anything", False),
        ("?!", "?!", False),
        ("日本", "船は 日本 から", True),
    ],
)
def test_the_words_of_a_value_stand_in_a_text_as_whole_words(value: object, text: str, stands: bool) -> None:
    assert stands_in(value, text) is stands


def test_a_caller_knows_what_was_read_when_the_window_begins() -> None:
    steps = kept(
        tool_run(
            "Moor the Petrel.",
            [("find_berth", {}, "B7 is free"), ("hold_berth", {"code": "B7"}, "ok"), ("pay", {}, "ok")],
        )
    )
    assert is_known("petrel", "Moor the Petrel.", steps, 0, 1)  # the task says it
    assert is_known("B7", "", steps, 1, 1)  # read when the window begins
    assert not is_known("B7", "", steps, 0, 1)  # read only inside the window
    assert is_known("red sails", "", steps, 0, 1)  # read nowhere: the caller's own
    assert not is_known(["petrel", {"berth": "B7"}], "Moor the Petrel.", steps, 0, 1)
    assert is_known([], "", steps, 0, 1)


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("B9", [("north", "berths", 1, "code"), ("north", 0, 1, "code"), (0, "berths", 1, "code")]),
        (40, [("fee",)]),
        ("40", [("fee",)]),  # a number whose digits the text holds
        (True, [("north", "berths", 0, "free"), ("north", 0, 0, "free"), (0, "berths", 0, "free")]),
        ("north", [(0, KEY)]),
        ("B8", []),
        (None, []),
    ],
)
def test_paths_lead_to_a_value_by_keys_and_by_places(value: object, paths: list[Any]) -> None:
    assert paths_to(value, BERTHS)[: len(paths)] == paths
    assert bool(paths_to(value, BERTHS)) is bool(paths)


def test_what_was_read_when_the_window_begins_stays_known_when_it_is_read_again() -> None:
    calls: list[Call] = [
        ("find_berth", {}, "B7 is free"),
        ("look", {}, "B7 is long"),
        ("hold", {"code": "B7"}, "ok"),
    ]
    steps = kept(tool_run("Moor the Petrel.", calls))
    assert is_known("B7", "", steps, 1, 2)
    assert not is_known("B7", "", steps, 0, 2)


def test_a_key_of_the_data_that_looks_like_the_sign_for_keys_is_no_path() -> None:
    given = {"id": {"@key": "B7"}, "@key": "x"}
    assert paths_to("B7", given) == []
    assert paths_to("x", given) == []
    assert paths_to("@key", given) == [("id", 0, KEY), (0, 0, KEY), (1, KEY)]


@pytest.mark.parametrize(
    "path",
    [("south",), ("fee", 0), (9,), (-1,), ("north", "berths", 2), (KEY,), ("fee", KEY), (9, KEY), (-1, KEY)],
)
def test_nothing_stands_at_a_path_that_leads_nowhere(path: Any) -> None:  # noqa: ANN401
    assert at_path(BERTHS, path) is None


def test_truth_values_are_no_numbers() -> None:
    assert not same(1, True)
    assert not same(True, 1)
    assert not same(0, False)
    assert same(False, False)
    assert not same("40", 40)
    assert not same(1, 1.0)


def test_at_most_sixty_four_paths_are_returned_of_a_huge_result() -> None:
    assert len(paths_to("x", [{"a": "x"}] * 5_000)) == 64


def test_what_lies_deeper_than_eight_entries_is_not_sought() -> None:
    given: object = "deep"
    for _ in range(9):
        given = [given]
    assert paths_to("deep", given) == []
    assert paths_to("deep", given[0]) == [(0,) * 8]  # type: ignore[index]


@given(st.data())
def test_each_path_to_a_value_leads_to_that_value(data: st.DataObject) -> None:
    held = data.draw(JSON)
    value = data.draw(st.sampled_from([held, *leaves(held)]) if list(leaves(held)) else JSON)
    paths = paths_to(value, held)
    assert all(same(at_path(held, path), value) for path in paths)
    assert len(set(paths)) == len(paths)


def of(trajectory: Trajectory, start: int, length: int) -> list[Body]:
    return bodies(trajectory.task, kept(trajectory), start, length)


def test_windows_are_two_to_five_actions_that_speak_to_nobody() -> None:
    steps = kept(mooring("h1", "a"))
    assert [list(windows(steps, start)) for start in range(5)] == [[2, 3], [2], [], [], []]
    long = kept(tool_run("", [("look", {"at": n}, "x") for n in range(9)]))
    assert list(windows(long, 0)) == [2, 3, 4, 5]


def test_windows_may_be_single_actions_or_all_between_two_that_speak() -> None:
    steps = kept(mooring("h1", "a"))
    assert [list(windows(steps, n, "action")) for n in range(5)] == [[1], [1], [1], [], [1]]
    assert [list(windows(steps, n, "trajectory")) for n in range(5)] == [[3], [], [], [], []]


def test_a_value_that_only_a_result_told_is_read_off_that_result() -> None:
    assert of(mooring("h1", "a"), 0, 3) == [
        (
            call("find_berth", boat=Arg("boat")),
            call("hold_berth", code=Result(0, ("berth", "code"))),
            call("take_fee", amount=Result(0, ("fee",))),
        )
    ]


def test_a_value_that_was_read_before_too_may_be_given_or_read_off() -> None:
    run = tool_run("Hold B7", [("find_berth", {}, {"code": "B7"}), ("hold_berth", {"code": "B7"}, "ok")])
    assert of(run, 0, 2) == [
        (call("find_berth"), call("hold_berth", code=Arg("code"))),
        (call("find_berth"), call("hold_berth", code=Result(0, ("code",)))),
    ]


def test_an_argument_that_comes_from_nowhere_makes_no_skill() -> None:
    calls: list[Call] = [("find_berth", {}, "berth B7 of ten"), ("hold_berth", {"code": "B7"}, "ok")]
    assert of(tool_run("", calls), 0, 2) == []


def test_an_element_of_the_page_at_the_call_is_given_and_a_later_one_is_found() -> None:
    (body,) = of(add_bed("g1", "a"), 0, 2)
    assert body == (press("link", "beds", Arg("beds_link")), press("button", "add bed", Find(0)))


def test_of_elements_that_are_alike_the_right_one_is_found() -> None:
    twice = page("button Save", "button Save", first=60)
    steps = kept(web_run("", [(HOME, "click", "link Beds", {}), (twice, "click", "button Save", {})]))
    outline = steps[1].outline
    assert outline is not None
    for element, ordinal in (("60", 0), ("61", 1)):
        done = [steps[0], replace(steps[1], element=outline.elements[element])]
        assert [body[1] for body in bodies("", done, 0, 2)] == [press("button", "save", Find(ordinal))]


def test_an_element_that_the_task_names_is_left_open_unless_its_role_is_narrow() -> None:
    run = web_run(
        "Save the tomato bed north.",
        [(BEDS, "click", "clickable Tomato bed north", {}), (FORM, "click", "button Save", {})],
    )
    ((opened, saved),) = of(run, 0, 2)
    assert (opened.role, opened.target, opened.args) == (None, None, (("element", Arg("element")),))
    assert saved == press("button", "save", Find(0))


@pytest.mark.parametrize(
    ("task", "label", "named"),
    [
        ("Open the Tomato bed.", "tomato bed", True),
        ("Open the bed of tomatoes.", "tomato bed", False),
        ("Water fern corner by dawn", "the fern corner by the door", True),
        ("Water the fern by the door", "fern corner at the door", False),
        ("anything", "", False),
        ("", "save", False),
        ("開く 日本", "日本", True),
    ],
)
def test_a_task_names_an_element_by_its_label_or_three_words_of_it(
    task: str, label: str, named: bool
) -> None:
    assert names(task, label) is named


@pytest.mark.parametrize(
    "name", ["from", "class", "None", "__debug__", "ﬁ", "on", "date_from", "two words", ""]
)
def test_an_argument_that_code_cannot_say_makes_no_skill(name: str) -> None:
    assert of(tool_run("", [("look", {}, "x"), ("book", {name: "x"}, "y")]), 0, 2) == []


@pytest.mark.parametrize("name", ["import", "None", "ﬁnd"])
def test_an_action_that_code_cannot_say_makes_no_skill(name: str) -> None:
    assert of(tool_run("", [("look", {}, "x"), (name, {}, "y")]), 0, 2) == []


def test_an_element_that_is_not_on_its_page_makes_no_skill() -> None:
    run = add_bed("g1", "a")
    opened, added, *_ = kept(run)
    assert bodies(run.task, [opened, added], 0, 2)
    assert bodies(run.task, [opened, replace(added, element=None)], 0, 2) == []


def test_keys_that_are_data_of_one_record_are_in_no_path() -> None:
    assert is_general(("berth", 0, "@key"))
    assert not is_general(("berth", "B7"))
    assert not is_general(("mail", "x@y.example"))
    assert not is_general(("k" * 40,))
    run = tool_run("", [("list_berths", {}, {"B7": {"zone": "north"}}), ("open_zone", {"zone": "north"}, "")])
    assert of(run, 0, 2) == [(call("list_berths"), call("open_zone", zone=Result(0, (0, "zone"))))]


@pytest.mark.timeout(20)
def test_a_record_of_many_fields_has_few_skills_at_once() -> None:
    fields = {f"field_{chr(97 + n // 26)}{chr(97 + n % 26)}": f"value {n} of it" for n in range(40)}
    run = tool_run(
        str(fields), [("get_record", {}, fields), ("put_record", fields, "ok"), ("close", {}, "ok")]
    )
    assert len(of(run, 0, 3)) == 24


@given(st.one_of(TOOL_RUNS, web_runs()), st.sampled_from(GRANULARITIES))
def test_each_skill_of_a_window_does_that_window(run: Trajectory, granularity: Granularity) -> None:
    steps = kept(run)
    for start in range(len(steps)):
        for length in windows(steps, start, granularity):
            found = bodies(run.task, steps, start, length)
            assert len(set(found)) == len(found) <= 24
            for body in found:
                assert len(body) == length
                assert checked(body) == body
                assert misfit(body, run.task, steps, start) is None
