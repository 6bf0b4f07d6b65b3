"""Skills are replayed over recorded states, and verified before they are kept."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser

from storage.errors import EnvironmentStopped, WrongInput
from tasks.induce.replay.verify import RecordedReplay, ReplayVerdict, opened, verify
from tasks.induce.replay.window import Broken, SourceWindow, call_at
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result
from tests.support.induce.faults import KINDS, done, with_fault
from tests.support.induce.lending import lending
from tests.support.induce.recordings import mails, renewal, whole, windows_of
from tests.support.induce.workshop.server import Said, served

SKILLS = [*windows_of(renewal("ada")), *windows_of(renewal("cleo", 1)), *windows_of(mails())]


def replayed(body: Body, window: SourceWindow) -> Broken | None:
    call = call_at(body, window)
    return call if isinstance(call, Broken) else RecordedReplay().replay(body, window, call)


@pytest.mark.parametrize(
    ("skill", "window"), SKILLS, ids=[f"{w.trajectory_id}-{w.start}-{w.length}" for _, w in SKILLS]
)
def test_each_skill_does_its_window_again(skill: Body, window: SourceWindow) -> None:
    assert replayed(skill, window) is None


LOAN, MAIL = whole(renewal("ada"), 4), whole(mails(), 5)


def with_step(held: tuple[Body, SourceWindow], at: int, **changed: Any) -> Body:  # noqa: ANN401 (fields of a step)
    body = held[0]
    return (*body[:at], replace(body[at], **changed), *body[at + 1 :])


def with_loan(value: Result | Const) -> Body:
    return with_step(LOAN, 2, args=(("loan_id", value),))


def given_loan(value: object) -> SourceWindow:
    """Return the window in which another loan was asked for."""
    steps = list(LOAN[1].steps)
    steps[2] = replace(steps[2], action=replace(steps[2].action, args={"loan_id": value}))
    return replace(LOAN[1], steps=steps)


@pytest.mark.parametrize(
    ("body", "window", "broken"),
    [
        ((LOAN[0][0], *LOAN[0][2:]), LOAN[1], Broken(1, "get_loan is done, get_member was")),
        (LOAN[0][:3], LOAN[1], Broken(3, "the skill ends before renew_loan")),
        (LOAN[0], replace(LOAN[1], length=3), Broken(3, "the skill goes on where the window ends")),
        (
            with_loan(Result(1, ("loans", 1))), LOAN[1],
            Broken(2, 'loan_id of get_loan is "L12", and was "L11"'),
        ),
        (  # of another type
            with_loan(Const("1")), given_loan(True), Broken(2, "loan_id of get_loan is 1, and was true"),
        ),
        (
            with_loan(Result(1, ("loan",))), LOAN[1],
            Broken(2, "loan_id of get_loan: what action 1 gave has nothing at ['loan']"),
        ),
        (
            with_loan(Result(2, ("loan_id",))), LOAN[1],
            Broken(2, "loan_id of get_loan is read off action 2, which does not come before it"),
        ),
        (
            with_step(LOAN, 3, args=LOAN[0][3].args[1:]), LOAN[1],
            Broken(3, "renew_loan is not given card, which was given"),
        ),
        (
            with_step(LOAN, 1, args=(*LOAN[0][1].args, ("town", Const('"York"')))), LOAN[1],
            Broken(1, "get_member is given town, which was not given"),
        ),
        (  # the second of two alike elements is not the first
            with_step(MAIL, 2, args=(("element", Find(0)),)), MAIL[1],
            Broken(2, 'element of click is "13", and was "14"'),
        ),
        (
            with_step(MAIL, 4, target="back"), MAIL[1],
            Broken(4, "click is on button 'back', and was on button 'send'"),
        ),
    ],
)  # fmt: skip
def test_what_differs_from_the_recording_is_told_by_its_place(
    body: Body, window: SourceWindow, broken: Broken
) -> None:
    assert replayed(body, window) == broken


@given(st.sampled_from(SKILLS), st.sampled_from(KINDS), st.integers(0, 2**32))
def test_every_fault_that_changes_an_argument_or_a_target_is_refused(
    held: tuple[Body, SourceWindow], kind: str, seed: int
) -> None:
    skill, window = held
    faulty = with_fault(kind, skill, window, random.Random(seed))  # noqa: S311 (seeded draws)
    call = call_at(skill, window)
    assert not isinstance(call, Broken)
    if faulty is None or done(faulty, call, window) == done(skill, call, window):
        return
    assert verify(faulty, [window], RecordedReplay()).broken is not None


RENEWALS = [whole(renewal(name, loan=0), 4) for name in ("ada", "ben", "cleo")]


def test_a_skill_is_verified_by_all_its_sources() -> None:
    body = RENEWALS[0][0]
    verdict = verify(body, [window for _, window in RENEWALS], RecordedReplay())
    sources = (("renewal-ada-0", 0), ("renewal-ben-0", 0), ("renewal-cleo-0", 0))
    assert verdict == ReplayVerdict(("recorded",), sources)


def test_one_source_in_which_it_does_something_else_drops_a_skill() -> None:
    body = RENEWALS[0][0]
    other = whole(renewal("ben", loan=1), 4)[1]
    verdict = verify(body, [RENEWALS[0][1], other], RecordedReplay())
    assert verdict.where == ("renewal-ben-1", 0)
    assert verdict.broken == Broken(2, 'loan_id of get_loan is "L21", and was "L22"')


def test_a_source_whose_caller_could_not_know_a_value_proves_nothing() -> None:
    body, window = RENEWALS[0]
    early = (body[0], replace(body[1], args=(("member_id", Arg("member")),)), *body[2:])
    told = replace(window, task=f"{window.task} I am m_ada.")
    unknown = Broken(1, "member_id of get_member is not known when the skill is called")
    assert verify(early, [window, told], RecordedReplay()).sources == (told.source,)
    assert verify(early, [window], RecordedReplay()) == ReplayVerdict((), (), unknown, window.source)
    nowhere = Broken(0, "there is no source to replay it in")
    assert verify(body, [], RecordedReplay()) == ReplayVerdict((), (), nowhere)


def test_crossed_parameters_drop_a_skill_wherever_it_is_from() -> None:
    body, window = RENEWALS[0]
    args = {**dict(body[3].args), "desk": Arg("loan_id"), "loan_id": Arg("desk")}
    verdict = verify((*body[:3], replace(body[3], args=tuple(args.items()))), [window], RecordedReplay())
    assert verdict.broken == Broken(3, "desk and loan_id of renew_loan are given each other's parameters")
    assert verdict.where is None


def test_a_command_verifies_tools_and_leaves_pages_to_the_recording(tmp_path: Path) -> None:
    with opened(f"command:{lending()}", tmp_path) as replay:
        tools = verify(RENEWALS[0][0], [window for _, window in RENEWALS], replay)
        body, window = whole(mails(), 5)
        pages = verify(body, [window], replay)
        wrong = replace(RENEWALS[0][0][2], args=(("loan_id", Result(1, ("loans", 1))),))
        dropped = verify((*RENEWALS[0][0][:2], wrong), [whole(renewal("ben"), 3)[1]], replay)
    assert (tools.how, len(tools.sources)) == (("command",), 3)
    assert (pages.how, len(pages.sources)) == (("recorded",), 1)
    assert dropped.broken == Broken(3, "what get_loan of step 2 gave is not given")


def test_a_spec_that_is_no_replay_is_refused(tmp_path: Path) -> None:
    with opened("recorded", tmp_path) as replay:
        assert replay.name == "recorded"
    with pytest.raises(WrongInput, match="'browser' is no way to verify skills"), opened("browser", tmp_path):
        pass


def test_an_application_without_a_state_verifies_nothing(browser: Browser, tmp_path: Path) -> None:
    assert browser.is_connected()
    body, window = whole(mails(), 2)
    what = r"answers POST /.skillery/reset with 404"
    with (
        served(lambda _: Said("", 404)) as url,
        opened(f"command:{sys.executable} -m tasks.induce.replay.chromium {url}", tmp_path) as replay,
        pytest.raises(EnvironmentStopped, match=what),
    ):
        verify(body, [window], replay)
