from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from storage.errors import EnvironmentStopped, WrongInput
from tasks.induce.replay.recorded import RecordedReplay
from tasks.induce.replay.verify import ReplayVerdict, opened, verify
from tasks.induce.replay.window import Broken
from tasks.induce.skills.actions import Arg, Result
from tests.support.induce.lending import lending
from tests.support.induce.recordings import mails, renewal, whole
from tests.support.induce.workshop.application import workshop
from tests.support.induce.workshop.recording import recorded
from tests.support.induce.workshop.server import Said, served
from tests.support.induce.workshop.tasks import tasks

RENEWALS = [whole(renewal(name, loan=0), 4) for name in ("ada", "ben", "cleo")]


def test_a_skill_is_verified_by_all_its_sources() -> None:
    body = RENEWALS[0][0]

    verdict = verify(body, [window for _, window in RENEWALS], RecordedReplay())

    sources = (("renewal-ada-0", 0), ("renewal-ben-0", 0), ("renewal-cleo-0", 0))
    assert verdict == ReplayVerdict(("recorded",), sources)
    assert verdict.verified


def test_one_source_in_which_it_does_something_else_drops_a_skill() -> None:
    body = RENEWALS[0][0]
    other = whole(renewal("ben", loan=1), 4)[1]

    verdict = verify(body, [RENEWALS[0][1], other], RecordedReplay())

    assert not verdict.verified
    assert verdict.where == ("renewal-ben-1", 0)
    assert verdict.broken == Broken(2, 'loan_id of get_loan is "L21", and was "L22"')


def test_a_source_whose_caller_could_not_know_a_value_proves_nothing() -> None:
    body, window = RENEWALS[0]
    early = (body[0], replace(body[1], args=(("member_id", Arg("member")),)), *body[2:])
    told = replace(window, task=f"{window.task} I am m_ada.")
    unknown = Broken(1, "member_id of get_member is not known when the skill is called")

    assert verify(early, [window, told], RecordedReplay()).sources == (told.source,)
    assert verify(early, [window], RecordedReplay()) == ReplayVerdict((), (), unknown, window.source)


def test_a_skill_without_sources_is_dropped() -> None:
    assert verify(RENEWALS[0][0], [], RecordedReplay()).broken == Broken(
        0, "there is no source to replay it in"
    )


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


def program(url: str) -> str:
    return f"command:{sys.executable} -m tasks.induce.replay.chromium {url}"


def test_a_browser_verifies_pages_and_leaves_tools_to_the_recording(browser: Browser, tmp_path: Path) -> None:
    with workshop() as shop:
        body, window = whole(recorded(browser, shop, tasks()[3]), 2)
        with opened(program(shop.url), tmp_path) as replay:
            pages = verify(body, [window], replay)
            tools = verify(RENEWALS[0][0], [RENEWALS[0][1]], replay)
            dropped = verify(body[:1], [window], replay)

    assert (pages.how, tools.how) == (("command",), ("recorded",))
    assert (dropped.broken, dropped.where) == (Broken(1, "another page is seen after it"), window.source)


def test_an_application_without_a_state_verifies_nothing(browser: Browser, tmp_path: Path) -> None:
    assert browser.is_connected()
    body, window = whole(mails(), 2)
    what = r"answers POST /.skillery/reset with 404"
    with (
        served(lambda _: Said("", 404)) as url,
        opened(program(url), tmp_path) as replay,
        pytest.raises(EnvironmentStopped, match=what),
    ):
        verify(body, [window], replay)


def test_the_form_that_drove_a_browser_is_refused(tmp_path: Path) -> None:
    instead = "'command:python -m tasks.induce.replay.chromium http://a/'"
    with pytest.raises(WrongInput, match=instead), opened("browser:http://a/", tmp_path):
        pass
