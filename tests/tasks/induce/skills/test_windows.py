"""Windows of runs as skills: what arguments are bound to, and whether a skill does what was done next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.skills.actions import (
    GRANULARITIES,
    KEY,
    Arg,
    Body,
    Const,
    Find,
    Granularity,
    Path,
    Result,
    SkillAction,
    checked,
    const,
)
from tasks.induce.skills.windows import (
    at_path,
    begins,
    bodies,
    decision_points,
    is_general,
    is_known,
    last_actions,
    leaves,
    misfit,
    names,
    paths_to,
    same,
    stands_in,
    windows,
)
from tasks.induce.trajectories.record import Action, Step, Trajectory
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
    calls: list[Call] = [
        ("find_berth", {}, "B7 is free"), ("look", {}, "B7 is long"), ("hold", {"code": "B7"}, "ok"),
    ]  # fmt: skip
    steps = kept(tool_run("Moor the Petrel.", calls))
    assert is_known("B7", "", steps, 1, 2)  # though it is read again
    assert not is_known("B7", "", steps, 0, 2)


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


@pytest.mark.parametrize(
    "path",
    [("south",), ("fee", 0), (9,), (-1,), ("north", "berths", 2), (KEY,), ("fee", KEY), (9, KEY), (-1, KEY)],
)
def test_nothing_stands_at_a_path_that_leads_nowhere(path: Any) -> None:  # noqa: ANN401
    assert at_path(BERTHS, path) is None


def test_truth_values_are_no_numbers() -> None:
    others: list[tuple[object, object]] = [(1, True), (True, 1), (0, False), ("40", 40), (1, 1.0)]
    assert not any(same(*each) for each in others)
    assert same(False, False)


def test_at_most_sixty_four_paths_are_returned_and_none_of_more_than_eight_entries() -> None:
    assert len(paths_to("x", [{"a": "x"}] * 5_000)) == 64
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


@pytest.mark.parametrize(
    ("granularity", "lengths"),
    [
        ("window", [[2, 3], [2], [], [], []]),
        ("action", [[1], [1], [1], [], [1]]),
        ("trajectory", [[3], [], [], [], []]),
    ],
)
def test_windows_are_two_to_five_actions_that_speak_to_nobody_single_ones_or_all(
    granularity: Granularity, lengths: list[list[int]]
) -> None:
    steps = kept(mooring("h1", "a"))
    assert [list(windows(steps, start, granularity)) for start in range(5)] == lengths
    long = kept(tool_run("", [("look", {"at": n}, "x") for n in range(9)]))
    assert list(windows(long, 0)) == [2, 3, 4, 5]


def test_a_value_is_given_where_it_was_read_before_and_read_off_the_result_that_told_it() -> None:
    assert of(mooring("h1", "a"), 0, 3) == [
        (
            call("find_berth", boat=Arg("boat")),
            call("hold_berth", code=Result(0, ("berth", "code"))),
            call("take_fee", amount=Result(0, ("fee",))),
        )
    ]
    run = tool_run("Hold B7", [("find_berth", {}, {"code": "B7"}), ("hold_berth", {"code": "B7"}, "ok")])
    assert of(run, 0, 2) == [
        (call("find_berth"), call("hold_berth", code=Arg("code"))),
        (call("find_berth"), call("hold_berth", code=Result(0, ("code",)))),
    ]
    nowhere: list[Call] = [("find_berth", {}, "berth B7 of ten"), ("hold_berth", {"code": "B7"}, "ok")]
    assert of(tool_run("", nowhere), 0, 2) == []


def test_an_element_of_the_page_at_the_call_is_given_and_a_later_one_is_found() -> None:
    run = add_bed("g1", "a")
    (body,) = of(run, 0, 2)
    assert body == (press("link", "beds", Arg("beds_link")), press("button", "add bed", Find(0)))
    opened, added, *_ = kept(run)  # and one that is not on its page makes no skill
    assert bodies(run.task, [opened, replace(added, element=None)], 0, 2) == []


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


@pytest.mark.parametrize(("name", "arg"), [("book", "from"), ("book", "date_from"), ("ﬁnd", "x")])
def test_an_action_or_argument_that_code_cannot_say_makes_no_skill(name: str, arg: str) -> None:
    assert of(tool_run("", [("look", {}, "x"), (name, {arg: "x"}, "y")]), 0, 2) == []


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


BEDS_LINK, ADD_BUTTON = ("click", "link", "beds"), ("click", "button", "add bed")


def test_a_moment_holds_the_action_before_and_its_state_summed_up() -> None:
    boats, beds = decision_points(mooring("h1", "a")), decision_points(add_bed("g1", "a"))
    assert [(moment.t, len(moment.bodies)) for moment in boats] == [(0, 2), (1, 1), (2, 0), (4, 0)]
    told = [moment.before[0] if moment.before else None for moment in boats]
    assert told == [None, "find_berth", "hold_berth", "send_msg_to_user"]
    assert [moment.before for moment in beds[:3]] == [None, BEDS_LINK, ADD_BUTTON]
    assert [moment.state for moment in boats] == [
        "after a message of the user: user: Moor the Petrel tonight.",
        "after find berth: berth, code, fee",
        "after hold berth: status",
        "after a message of the user: user: Thank you.",
    ]


def test_steps_that_fell_out_come_after_an_action_but_are_none_before_another() -> None:
    first, second, *_ = add_bed("g1", "a").steps
    failed = Step(1, BEDS, Action("click", {"element": "99"}), error="no such element")
    run = Trajectory("g", "g", "greenhouse", "Add a bed", True, (first, failed, second), FORM)
    assert last_actions(run, kept(run)) == [None, BEDS_LINK, BEDS_LINK]
    assert [moment.t for moment in decision_points(run)] == [0, 1]


@given(TOOL_RUNS | web_runs())
def test_moments_stand_at_the_steps_that_are_kept_and_speak_to_nobody(run: Trajectory) -> None:
    found = decision_points(run)
    assert [moment.t for moment in found] == [step.t for step in kept(run) if not step.action.speaks]
    before = last_actions(run, kept(run))
    acting = [step for step in kept(run) if not step.action.speaks]
    assert [moment.before for moment in found] == [before[step.place] for step in acting]
    assert decision_points(run) == found


MOOR = mooring("h1", "a")
FIND, HOLD = call("find_berth", boat=Arg("boat")), call("hold_berth", code=Result(0, ("berth", "code")))
OPEN = SkillAction("click", None, None, (("element", Arg("element")),))


GIVEN, FEE = call("hold_berth", code=Arg("code")), call("take_fee", amount=Arg("amount"))
SPEAKS = call("send_msg_to_user", text=Arg("text"))
PATHS: list[Path] = [(), ("berth",), ("berth", "name"), ("berth", 0, "@key"), ("fee",), (0, 1)]


@pytest.mark.parametrize(
    ("body", "start", "misfits"),
    [
        ((FIND, FEE), 0, 1),
        ((HOLD, FIND), 0, 0),
        ((FIND, HOLD), 1, 0),
        ((call("send_receipt", boat=Arg("boat")), FIND), 4, 1),  # behind the last step
        ((SPEAKS,), 3, 0),
        ((FIND, GIVEN), 0, 1),  # what only a result of the skill tells the caller cannot give
        ((GIVEN, FEE), 1, None),
        *(((FIND, call("hold_berth", code=Result(0, path))), 0, 1) for path in PATHS),
        ((call("find_berth", boat=Const(const("Petrel"))), HOLD), 0, None),
        ((call("find_berth", boat=Const(const("Auk"))), HOLD), 0, 0),
        ((call("find_berth"),), 0, 0),  # arguments are all those of the action, and no others
        ((call("find_berth", boat=Arg("boat"), day=Arg("day")),), 0, 0),
    ],
)
def test_the_first_action_that_is_not_what_was_done_is_told(
    body: Body, start: int, misfits: int | None
) -> None:
    assert misfit(body, MOOR.task, kept(MOOR), start) == misfits


PRESSED = press("link", "beds")


def test_an_element_that_the_caller_gives_is_on_the_page_at_the_call() -> None:
    run = add_bed("g1", "a")
    given = (PRESSED, press("button", "add bed"))
    assert misfit(given, run.task, kept(run), 0) == 1
    assert misfit(given[1:], run.task, kept(run), 1) is None
    assert misfit((PRESSED, press("button", "add bed", Find(0))), run.task, kept(run), 0) is None


def test_an_action_of_the_web_on_no_element_fits_by_its_name() -> None:
    run = web_run("", [(BEDS, "click", "link Beds", {}), (FORM, "keyboard_press", "", {"key": "Enter"})])
    fitting = (call("keyboard_press", key=Arg("key")), press("button", "save", name="keyboard_press"))
    assert [misfit((PRESSED, second), "", kept(run), 0) for second in fitting] == [None, 1]
    lost = replace(kept(run)[0], element=None)  # it is not on the page
    assert not begins(PRESSED, "", lost)
    assert not begins(OPEN, "beds", lost)
    assert begins(call("find_berth"), MOOR.task, kept(MOOR)[0])  # arguments aside
    assert not begins(SPEAKS, MOOR.task, kept(MOOR)[3])


@pytest.mark.parametrize("number", [-1, 1, 2, 99])
def test_a_result_is_of_an_earlier_action_of_the_skill_alone(number: int) -> None:
    steps = kept(MOOR)
    # The step before the skill, the action itself and later ones gave the value, or are not there.
    held = [replace(step, result={"berth": {"code": "B7"}}) for step in steps]
    wrong = (FIND, call("hold_berth", code=Result(number, ("berth", "code"))))
    assert misfit(wrong, MOOR.task, held, 0) == 1
    later = (
        call("hold_berth", code=Result(number, ("berth", "code"))),
        call("take_fee", amount=Arg("amount")),
    )
    assert misfit(later, MOOR.task, held, 1) == 0


def test_of_elements_that_are_alike_the_ordinal_decides() -> None:
    twice = page("button Save", "button Save", first=60)
    run = web_run("", [(HOME, "click", "link Beds", {}), (twice, "click", "button Save", {})])
    steps = kept(run)
    outline = steps[1].outline
    assert outline is not None
    second = [steps[0], replace(steps[1], element=outline.elements["61"])]
    for found, ordinal in ((steps, 0), (second, 1)):
        assert [body[1] for body in bodies("", found, 0, 2)] == [press("button", "save", Find(ordinal))]
        fitting = [
            n for n in range(3)
            if misfit((press("link", "beds"), press("button", "save", Find(n))), "", found, 0) is None
        ]  # fmt: skip
        assert fitting == [ordinal]


@pytest.mark.parametrize(
    ("seen", "on", "task", "fits"),
    [
        (BEDS, "clickable Tomato bed north", "water the tomato bed north", True),
        (BEDS, "clickable Tomato bed north", "water the tomato bed", False),
        (BEDS, "link Orders 12", "look at the orders", True),  # the count is no part of the name
        (FORM, "button Save", "save it", False),
        (FORM, "textbox Name", "give it a name", False),
        (FORM, "combobox Soil", "other soil", False),
    ],
)
def test_an_open_element_is_one_that_the_task_names_and_no_narrow_one(
    seen: str, on: str, task: str, fits: bool
) -> None:
    steps = kept(web_run(task, [(seen, "click", on, {})]))
    assert (misfit((OPEN,), task, steps, 0) is None) is fits
    assert begins(OPEN, task, steps[0]) is fits
