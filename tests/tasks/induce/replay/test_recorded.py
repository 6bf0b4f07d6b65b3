# ruff: noqa: S311 - seeded draws

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.replay.calls import call_at
from tasks.induce.replay.recorded import RecordedReplay
from tasks.induce.replay.verify import verify
from tasks.induce.replay.window import Broken, SourceWindow
from tasks.induce.skills.actions import Body, Const, Find, Result
from tests.support.induce.effects import done
from tests.support.induce.faults import KINDS, with_fault
from tests.support.induce.recordings import mails, renewal, whole, windows_of

SKILLS = [*windows_of(renewal("ada")), *windows_of(renewal("cleo", 1)), *windows_of(mails())]


def replayed(body: Body, window: SourceWindow) -> Broken | None:
    call = call_at(body, window)
    return call if isinstance(call, Broken) else RecordedReplay().replay(body, window, call)


@pytest.mark.parametrize(
    ("skill", "window"), SKILLS, ids=[f"{w.trajectory_id}-{w.start}-{w.length}" for _, w in SKILLS]
)
def test_each_skill_does_its_window_again(skill: Body, window: SourceWindow) -> None:
    assert replayed(skill, window) is None


def test_an_action_left_out_is_told_by_what_was_done_there() -> None:
    skill, window = whole(renewal("ada"), 4)

    assert replayed((skill[0], *skill[2:]), window) == Broken(1, "get_loan is done, get_member was")
    assert replayed(skill[:3], window) == Broken(3, "the skill ends before renew_loan")


def test_an_action_more_than_the_window_has_is_refused() -> None:
    skill, window = whole(renewal("ada"), 4)

    assert replayed(skill, replace(window, length=3)) == Broken(3, "the skill goes on where the window ends")


def test_another_value_is_told_beside_the_recorded_one() -> None:
    skill, window = whole(renewal("ada"), 4)
    wrong = replace(skill[2], args=(("loan_id", Result(1, ("loans", 1))),))

    assert replayed((*skill[:2], wrong, skill[3]), window) == Broken(
        2, 'loan_id of get_loan is "L12", and was "L11"'
    )


def test_a_path_to_nothing_and_a_result_to_come_are_refused() -> None:
    skill, window = whole(renewal("ada"), 4)
    nowhere = replace(skill[2], args=(("loan_id", Result(1, ("loan",))),))
    later = replace(skill[2], args=(("loan_id", Result(2, ("loan_id",))),))

    assert replayed((*skill[:2], nowhere, skill[3]), window) == Broken(
        2, "loan_id of get_loan: what action 1 gave has nothing at ['loan']"
    )
    assert replayed((*skill[:2], later, skill[3]), window) == Broken(
        2, "loan_id of get_loan is read off action 2, which does not come before it"
    )


def test_no_argument_may_be_missing_and_none_too_many() -> None:
    skill, window = whole(renewal("ada"), 4)
    less = replace(skill[3], args=skill[3].args[1:])
    more = replace(skill[1], args=(*skill[1].args, ("town", Const('"York"'))))

    assert replayed((*skill[:3], less), window) == Broken(3, "renew_loan is not given card, which was given")
    assert replayed((skill[0], more, *skill[2:]), window) == Broken(
        1, "get_member is given town, which was not given"
    )


def test_a_constant_of_another_type_is_another_value() -> None:
    skill, window = whole(renewal("ada"), 2)
    number = replace(skill[0], args=(("email", Const("1")),))
    text = replace(window.steps[0], action=replace(window.steps[0].action, args={"email": True}))
    window = replace(window, steps=(text, *window.steps[1:]))

    assert replayed((number, skill[1]), window) == Broken(0, "email of find_member is 1, and was true")


def test_the_second_of_two_alike_elements_is_not_the_first() -> None:
    skill, window = whole(mails(), 5)
    first = replace(skill[2], args=(("element", Find(0)),))

    assert replayed((*skill[:2], first, *skill[3:]), window) == Broken(
        2, 'element of click is "13", and was "14"'
    )


def test_another_label_is_another_target() -> None:
    skill, window = whole(mails(), 5)
    back = replace(skill[4], target="back")

    assert replayed((*skill[:4], back), window) == Broken(
        4, "click is on button 'back', and was on button 'send'"
    )


@given(st.sampled_from(SKILLS), st.sampled_from(KINDS), st.integers(0, 2**32))
def test_every_fault_that_changes_an_argument_or_a_target_is_refused(
    held: tuple[Body, SourceWindow], kind: str, seed: int
) -> None:
    skill, window = held
    faulty = with_fault(kind, skill, window, random.Random(seed))
    call = call_at(skill, window)
    assert not isinstance(call, Broken)
    if faulty is None or done(faulty, call, window) == done(skill, call, window):
        return

    assert not verify(faulty, [window], RecordedReplay()).verified


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_changes_something_somewhere(kind: str) -> None:
    rng = random.Random(42)
    changed = 0
    for skill, window in SKILLS:
        faulty = with_fault(kind, skill, window, rng)
        call = call_at(skill, window)
        assert not isinstance(call, Broken)
        changed += faulty is not None and done(faulty, call, window) != done(skill, call, window)

    assert changed > 3
