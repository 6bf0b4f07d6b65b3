"""Windows of recordings, and what a caller gives there."""

from __future__ import annotations

from dataclasses import replace

from tasks.induce.replay.window import Broken, call_at, crossed, source_windows
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.skills.code import actions_of
from tasks.induce.trajectories.outline import Element
from tasks.induce.windows.recurrence import misfit
from tests.support.induce.recordings import mails, renewal, whole
from tests.support.induce.runs import add_bed


def test_each_skill_of_a_run_has_the_window_that_it_does_again() -> None:
    for run in (renewal("ada"), add_bed("g1", "a")):
        found = list(source_windows(run))
        assert found
        for moment, body, window in found:
            assert window.source == (run.trajectory_id, moment.t)
            assert (window.length, window.domain) == (len(body), run.domain)
            assert misfit(body, run.task, window.steps, window.start) is None


def body(*lines: str, given: str = "") -> Body:
    code = f"def skill({given}):\n" + "".join(f"    {line}\n" for line in lines)
    return actions_of(code)[1]


def test_a_caller_gives_what_was_recorded() -> None:
    assert call_at(*whole(renewal("ada"), 4)) == {"email": "ada@example.com", "desk": "north"}


def test_a_caller_points_at_elements_of_the_page_of_the_call() -> None:
    call = call_at(*whole(mails(), 5))
    assert call == {
        "checkbox": Element("6", "checkbox", "", 1),
        "omar_harvest_plan_clickable": Element("5", "clickable", "omar harvest plan", 0),
        "message_text": "Gladly",
    }


def test_an_element_that_comes_later_is_in_no_call() -> None:
    skill, window = whole(mails(), 5)
    reply = replace(skill[2], args=(("element", Arg("reply")),))
    assert call_at((*skill[:2], reply, *skill[3:]), window) == Broken(
        2, "element of click is not on the page of the call"
    )


def test_a_value_that_is_read_inside_the_window_is_in_no_call() -> None:
    skill = body("find_member(email=email)", "get_member(member_id=member)", given="email, member")
    _, window = whole(renewal("ada"), 2)
    assert call_at(skill, window) == Broken(
        1, "member_id of get_member is not known when the skill is called"
    )


def test_a_parameter_used_twice_has_the_value_of_its_first_use() -> None:
    skill = body("find_member(email=it)", "get_member(member_id=it)", given="it")
    _, window = whole(renewal("ada"), 2)
    assert call_at(skill, window) == {"it": "ada@example.com"}


def test_a_skill_of_fewer_actions_is_called_by_the_steps_of_their_names() -> None:
    skill = body("find_member(email=email)", 'renew_loan(desk=desk, card="c")', given="email, desk")
    _, window = whole(renewal("ada"), 4)
    assert call_at(skill, window) == {"email": "ada@example.com", "desk": "north"}


def test_what_the_recording_has_no_argument_for_is_left_out() -> None:
    skill = body("find_member(email=email, town=town)", "get_member(member_id_from=[0])", given="email, town")
    _, window = whole(renewal("ada"), 2)
    assert call_at(skill, window) == {"email": "ada@example.com"}


def test_arguments_that_bear_each_others_names_are_crossed() -> None:
    crossing = body(
        "get_loan(loan_id=loan_id)", "renew_loan(desk=loan_id_2, loan_id=desk)",
        given="loan_id, loan_id_2, desk",
    )  # fmt: skip
    assert crossed(crossing) == Broken(1, "desk and loan_id of renew_loan are given each other's parameters")


def test_arguments_with_names_of_their_own_are_not_crossed() -> None:
    free = body("move(source=shelf, target=source)", "move(source=a, target=b)", given="shelf, source, a, b")
    assert crossed(free) is None
    assert crossed(whole(mails(), 5)[0]) is None
