"""The moments of trajectories: situations, what was done next, and skills that do it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from tasks.induce.skills.actions import Arg, Find
from tasks.induce.trajectories.cleaning import cleaned, is_web
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.induce.windows.recurrence import moments, situation_of, situations
from tests.support.induce.runs import (
    BEDS,
    FORM,
    HOME,
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


def test_a_moment_holds_what_was_done_next_up_to_what_speaks() -> None:
    found = moments(mooring("h1", "a"))

    assert [[name for name, _, _ in moment.after] for moment in found] == [
        ["find_berth", "hold_berth"], ["hold_berth", "take_fee"], ["take_fee"], ["send_receipt"]
    ]  # fmt: skip
    assert moments(add_bed("g1", "a"))[0].after == (BEDS_LINK, ADD_BUTTON)


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


def test_the_situation_at_a_step_holds_the_last_three_actions_before_it() -> None:
    run = add_bed("g1", "a")

    met = situations(run, kept(run))

    assert [len(one.before) for one in met] == [0, 1, 2, 3, 3]
    assert met[4].before == (ADD_BUTTON, ("fill", "textbox", "name"), ("select_option", "combobox", "soil"))


def test_steps_that_fell_out_have_a_situation_but_are_in_no_history() -> None:
    first, second, *_ = add_bed("g1", "a").steps
    failed = Step(1, BEDS, Action("click", {"element": "99"}), error="no such element")
    run = Trajectory("g", "g", "greenhouse", "Add a bed", True, (first, failed, second), FORM)

    met = situations(run, kept(run))

    assert [one.before for one in met] == [(), (BEDS_LINK,), (BEDS_LINK,)]
    assert [moment.t for moment in moments(run)] == [0, 1]


def test_a_page_is_marked_by_its_elements_title_and_address_without_numbers() -> None:
    met = situation_of("", HOME, "http://green.example/#/beds/71", "Green", [])

    assert met.marks == {
        "link beds", "link orders", "button help", "title Green", "url http://green.example/#/beds/#"
    }  # fmt: skip
    assert met.page is not None


def test_a_tools_result_is_marked_by_the_tool_and_the_words_of_its_fields() -> None:
    seen = 'find_berth returned: {"status": "free", "code": "B7", "zone": "north pier", "fee": 40}'

    met = situation_of("", seen, "", "", [])

    assert met.marks == {"from find_berth", "status is free", "zone is north pier"}
    assert met.page is None


def test_a_message_is_marked_by_its_words() -> None:
    assert situation_of("", "user: Moor B7", "", "", []).marks == {"said", "said user", "said moor", "said b"}


def test_a_trajectory_without_steps_has_no_moments() -> None:
    assert moments(tool_run("nothing", [])) == []
    assert moments(web_run("nothing", [])) == []


@settings(deadline=None)
@given(TOOL_RUNS | web_runs())
def test_a_situation_knows_nothing_of_what_is_done_there_or_later(run: Trajectory) -> None:
    met = situations(run, cleaned(run)[0])

    assert len(met) == len(run.steps)
    for place, step in enumerate(run.steps):
        other = replace(step, action=Action("other", dict(step.action.args)))
        cut = replace(run, steps=(*run.steps[:place], other), final="")
        # Whether a run is on pages is told by all of its actions, so it may show only later.
        if is_web(cut) == is_web(run):
            assert situations(cut, cleaned(cut)[0])[place] == met[place]


@settings(deadline=None)
@given(TOOL_RUNS | web_runs())
def test_moments_stand_at_the_steps_that_are_kept_and_speak_to_nobody(run: Trajectory) -> None:
    found = moments(run)

    assert [moment.t for moment in found] == [step.t for step in kept(run) if not step.action.speaks]
    assert all(moment.after and moment.after[0] == step.target for moment, step in zip(
        found, [step for step in kept(run) if not step.action.speaks], strict=True
    ))  # fmt: skip
    assert moments(run) == found
