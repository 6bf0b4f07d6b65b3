"""The moments of trajectories, and whether a skill does what was done next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tasks.induce.skills.actions import Arg, Const, Find, Path, Result, SkillAction, const
from tasks.induce.skills.windows import begins, decision_points, last_actions, misfit
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tests.support.induce.runs import (
    BEDS,
    FORM,
    HOME,
    TOOL_RUNS,
    add_bed,
    call,
    kept,
    mooring,
    page,
    press,
    web_run,
    web_runs,
)

BEDS_LINK, ADD_BUTTON = ("click", "link", "beds"), ("click", "button", "add bed")


def test_each_step_that_speaks_to_nobody_is_a_moment() -> None:
    found = decision_points(mooring("h1", "a"))
    assert [moment.t for moment in found] == [0, 1, 2, 4]
    assert {(moment.trajectory_id, moment.task_id, moment.domain) for moment in found} == {
        ("h1", "a", "harbour")
    }
    assert [len(moment.bodies) for moment in found] == [2, 1, 0, 0]


def test_a_moment_holds_the_action_before_and_its_state_summed_up() -> None:
    boats, beds = decision_points(mooring("h1", "a")), decision_points(add_bed("g1", "a"))
    told = [moment.before[0] if moment.before else None for moment in boats]
    assert told == [None, "find_berth", "hold_berth", "send_msg_to_user"]
    assert [moment.before for moment in beds[:3]] == [None, BEDS_LINK, ADD_BUTTON]
    assert [moment.state for moment in boats] == [
        "after a message of the user: user: Moor the Petrel tonight.",
        "after find berth: berth, code, fee",
        "after hold berth: status",
        "after a message of the user: user: Thank you.",
    ]


def test_equal_windows_of_two_tasks_are_one_skill() -> None:
    one, other = decision_points(mooring("h1", "a")), decision_points(mooring("h2", "b", "Auk", "C3", 55))
    assert [moment.bodies for moment in one] == [moment.bodies for moment in other]
    ferns, palms = (
        decision_points(add_bed("g1", "a")),
        decision_points(add_bed("g2", "b", "Palm house", "peat")),
    )
    assert [moment.bodies for moment in ferns] == [moment.bodies for moment in palms]
    assert (press("link", "beds", Arg("beds_link")), press("button", "add bed", Find(0))) in ferns[0].bodies


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


def test_the_first_action_that_is_another_one_is_told() -> None:
    steps = kept(MOOR)
    assert misfit((FIND, call("take_fee", amount=Arg("amount"))), MOOR.task, steps, 0) == 1
    assert misfit((HOLD, FIND), MOOR.task, steps, 0) == 0
    assert misfit((FIND, HOLD), MOOR.task, steps, 1) == 0


def test_a_skill_that_goes_on_behind_the_last_step_does_not_fit() -> None:
    steps = kept(MOOR)
    assert misfit((call("send_receipt", boat=Arg("boat")), FIND), MOOR.task, steps, 4) == 1


def test_a_skill_never_does_what_speaks() -> None:
    speaks = call("send_msg_to_user", text=Arg("text"))
    assert misfit((speaks,), MOOR.task, kept(MOOR), 3) == 0
    assert not begins(speaks, MOOR.task, kept(MOOR)[3])


def test_what_only_a_result_of_the_skill_tells_the_caller_cannot_give() -> None:
    steps = kept(MOOR)
    given = (FIND, call("hold_berth", code=Arg("code")))
    assert misfit(given, MOOR.task, steps, 0) == 1
    assert misfit((given[1], call("take_fee", amount=Arg("amount"))), MOOR.task, steps, 1) is None


@pytest.mark.parametrize("path", [(), ("berth",), ("berth", "name"), ("berth", 0, "@key"), ("fee",), (0, 1)])
def test_a_result_fits_only_by_a_path_to_what_was_recorded(path: Path) -> None:
    assert misfit((FIND, call("hold_berth", code=Result(0, path))), MOOR.task, kept(MOOR), 0) == 1


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


def test_a_constant_fits_where_it_was_given() -> None:
    steps = kept(MOOR)
    assert misfit((call("find_berth", boat=Const(const("Petrel"))), HOLD), MOOR.task, steps, 0) is None
    assert misfit((call("find_berth", boat=Const(const("Auk"))), HOLD), MOOR.task, steps, 0) == 0


def test_arguments_are_all_those_of_the_action_and_no_others() -> None:
    steps = kept(MOOR)
    assert misfit((call("find_berth"),), MOOR.task, steps, 0) == 0
    assert misfit((call("find_berth", boat=Arg("boat"), day=Arg("day")),), MOOR.task, steps, 0) == 0
    assert begins(call("find_berth"), MOOR.task, steps[0])  # arguments aside


def test_an_element_that_the_caller_gives_is_on_the_page_at_the_call() -> None:
    run = add_bed("g1", "a")
    steps = kept(run)
    given = (press("link", "beds"), press("button", "add bed"))
    assert misfit(given, run.task, steps, 0) == 1
    assert misfit(given[1:], run.task, steps, 1) is None
    assert misfit((given[0], press("button", "add bed", Find(0))), run.task, steps, 0) is None


def test_of_elements_that_are_alike_the_ordinal_decides() -> None:
    twice = page("button Save", "button Save", first=60)
    run = web_run("", [(HOME, "click", "link Beds", {}), (twice, "click", "button Save", {})])
    steps = kept(run)
    outline = steps[1].outline
    assert outline is not None
    second = [steps[0], replace(steps[1], element=outline.elements["61"])]
    for found, ordinal in ((steps, 0), (second, 1)):
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


def test_an_element_that_is_not_on_the_page_is_begun_by_nothing() -> None:
    (step,) = kept(web_run("save", [(BEDS, "click", "link Beds", {})]))
    lost = replace(step, element=None)
    assert not begins(OPEN, "save", lost)
    assert not begins(press("link", "beds"), "save", lost)


def test_an_action_of_the_web_on_no_element_fits_by_its_name() -> None:
    run = web_run("", [(BEDS, "click", "link Beds", {}), (FORM, "keyboard_press", "", {"key": "Enter"})])
    steps = kept(run)
    assert misfit((press("link", "beds"), call("keyboard_press", key=Arg("key"))), "", steps, 0) is None
    assert misfit((press("link", "beds"), press("button", "save", name="keyboard_press")), "", steps, 0) == 1
