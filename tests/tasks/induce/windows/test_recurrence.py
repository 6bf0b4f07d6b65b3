"""The moments of trajectories: states, the actions before, and skills that do what was done next."""

from __future__ import annotations

from hypothesis import given, settings

from tasks.induce.skills.actions import Arg, Find
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.induce.windows.recurrence import last_actions, moments
from tests.support.induce.runs import (
    BEDS,
    FORM,
    TOOL_RUNS,
    add_bed,
    kept,
    mooring,
    press,
    tool_run,
    web_run,
    web_runs,
)

BEDS_LINK, ADD_BUTTON = ("click", "link", "beds"), ("click", "button", "add bed")


def test_each_step_that_speaks_to_nobody_is_a_moment() -> None:
    found = moments(mooring("h1", "a"))

    assert [moment.t for moment in found] == [0, 1, 2, 4]
    assert {(moment.trajectory_id, moment.task_id, moment.domain) for moment in found} == {
        ("h1", "a", "harbour")
    }
    assert [len(moment.bodies) for moment in found] == [2, 1, 0, 0]


def test_a_moment_holds_the_action_before_and_its_state_summed_up() -> None:
    boats, beds = moments(mooring("h1", "a")), moments(add_bed("g1", "a"))

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
    one, other = moments(mooring("h1", "a")), moments(mooring("h2", "b", "Auk", "C3", 55))

    assert [moment.bodies for moment in one] == [moment.bodies for moment in other]
    ferns, palms = moments(add_bed("g1", "a")), moments(add_bed("g2", "b", "Palm house", "peat"))
    assert [moment.bodies for moment in ferns] == [moment.bodies for moment in palms]
    assert (press("link", "beds", Arg("beds_link")), press("button", "add bed", Find(0))) in ferns[0].bodies


def test_granularity_sets_which_windows_are_skills() -> None:
    run = mooring("h1", "a")

    assert [len(body) for m in moments(run, "action") for body in m.bodies] == [1, 1, 1, 1]
    assert [len(body) for m in moments(run, "trajectory") for body in m.bodies] == [3]


def test_steps_that_fell_out_come_after_an_action_but_are_none_before_another() -> None:
    first, second, *_ = add_bed("g1", "a").steps
    failed = Step(1, BEDS, Action("click", {"element": "99"}), error="no such element")
    run = Trajectory("g", "g", "greenhouse", "Add a bed", True, (first, failed, second), FORM)

    assert last_actions(run, kept(run)) == [None, BEDS_LINK, BEDS_LINK]
    assert [moment.t for moment in moments(run)] == [0, 1]


def test_a_trajectory_without_steps_has_no_moments() -> None:
    assert moments(tool_run("nothing", [])) == []
    assert moments(web_run("nothing", [])) == []


@settings(deadline=None)
@given(TOOL_RUNS | web_runs())
def test_moments_stand_at_the_steps_that_are_kept_and_speak_to_nobody(run: Trajectory) -> None:
    found = moments(run)

    assert [moment.t for moment in found] == [step.t for step in kept(run) if not step.action.speaks]
    before = last_actions(run, kept(run))
    acting = [step for step in kept(run) if not step.action.speaks]
    assert [moment.before for moment in found] == [before[step.place] for step in acting]
    assert moments(run) == found
