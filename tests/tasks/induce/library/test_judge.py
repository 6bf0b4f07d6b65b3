"""The LLM judge of runs: what it is shown, what it may answer, and what becomes of an answer that is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.root import Root
from tasks.induce.library.judge import MOST_STATE, PROMPT, LlmTrajectoryJudge, record_of
from tasks.models.llm.ask import Llm
from tasks.models.llm.errors import Rejected
from tests.support.induce.runs import FORM, HOME, add_bed, mooring, tool_run, web_run
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import SUCCESS
from tests.support.llm.scripted import record_of as asked_about

FAILURE = 'Thoughts: the berth was only looked for.\nStatus: "failure"'
KEY = "AKIA" + "QWERTZUIOPASDFGH"


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(
        say=lambda asked: SUCCESS if "bed" in asked_about(asked)["intent"] else FAILURE
    ) as running:
        yield running


@pytest.fixture
def llm(server: LlmServer, tmp_path: Path) -> Iterator[Llm]:
    with Answers(Root(tmp_path)) as answers:
        yield llm_of(server.url, answers)


def test_the_model_judges_each_run_whatever_was_declared(llm: Llm, server: LlmServer) -> None:
    runs = [
        replace(add_bed("g", "b"), success=False),
        mooring("h", "m"),
        replace(mooring("i", "m"), final="x"),
    ]
    assert LlmTrajectoryJudge(llm).verdicts(runs) == [True, False, False]
    assert server.requests == 3
    assert not any("success" in asked_about(asked) for asked in server.asked)


def test_a_run_that_does_not_fit_the_model_waits_and_is_not_judged_by_a_part(
    server: LlmServer, tmp_path: Path
) -> None:
    run = replace(add_bed("g", "b"), final="the bed is there " * 300)
    with Answers(Root(tmp_path)) as answers:
        llm = llm_of(server.url, answers, context=2_500)
        assert LlmTrajectoryJudge(llm).verdicts([run, add_bed("h", "b")]) == [None, True]
    assert (llm.ledger.counts["shortened"], server.requests) == (0, 1)


def test_an_answer_that_is_none_is_asked_for_once_more_and_then_the_run_waits(
    llm: Llm, server: LlmServer
) -> None:
    judge, run = LlmTrajectoryJudge(llm), add_bed("g", "b")
    server.say = lambda _: "It went well, I think."
    assert judge.verdicts([run]) == [None]
    assert [asked.corrected for asked in server.asked] == [False, True]
    assert "the last line must be" in server.asked[1].prompt
    assert llm.fallbacks == {"induce-judge-1: malformed": 1}
    assert judge.verdicts([run]) == [None]
    assert server.requests == 2  # what was said is known


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (SUCCESS, True),
        (FAILURE, False),
        ("Status: success", True),
        ("Thoughts: well\n\n**Status:** Failure\n", False),
        ('<think>Status: "failure"?</think>Thoughts: fine\nStatus: "success"', True),
        ("Thoughts: the status: of the order is held\nSTATUS: 'success'.", True),
        *dict.fromkeys(
            [
                "", "success", "Status:", 'Status: "success" or "failure"', "Status: partial success",
                'Status: "success"\nThoughts: or so', 'Status: "failure"\nStatus: "success"',
                'Thoughts: no success\nStatus: unknown', '{"status": "success"}', 'Status: "not success"',
            ]
        ).items(),
    ],
)  # fmt: skip
def test_the_last_line_is_the_verdict(text: str, verdict: bool | None) -> None:
    """Without a single verdict there is none."""
    with pytest.raises(Rejected) if verdict is None else nullcontext():
        assert PROMPT.read(text) is verdict


def test_steps_of_tools_are_shown_with_what_was_answered() -> None:
    record = record_of(mooring("h", "m", "Petrel", "B7"))
    lines = record["actions"].splitlines()
    assert lines[0].startswith('1. find_berth(boat="Petrel") -> find_berth returned:')
    assert "3. take_fee(amount=40)" in record["actions"]
    assert "Thank you." in lines[3]
    assert (record["intent"], record["response"]) == ("Moor the Petrel tonight.", None)
    done = tool_run("How much?", [("send_msg_to_user", {"text": "It is 40."}, "Thanks")])
    assert record_of(done)["response"] == "It is 40."


def test_steps_of_pages_are_shown_with_what_they_were_on_and_errors() -> None:
    run = add_bed("g", "b")
    failed = replace(run.steps[0], error="no such element")
    record = record_of(replace(run, steps=(failed, *run.steps[1:])))
    assert record["actions"].splitlines()[:3] == [
        '1. click(link "beds") -> error: no such element',
        '2. click(button "add bed")',
        '3. fill(textbox "name", text="Fern corner")',
    ]
    assert record["final_state"] == HOME


def test_no_secret_is_sent() -> None:
    page = FORM.replace("Name", "Password")
    typed = web_run("Log in.", [(page, "fill", "textbox Password", {"text": "hello-berth"})], f"text {KEY}")
    called = tool_run(f"Use {KEY}.", [("log_in", {"api_key": "hush", "q": f"{KEY} " * 40}, f"it is {KEY}")])
    for run in (typed, called):
        record = str(record_of(run))
        assert "[redacted" in record
        assert not any(secret in record for secret in (KEY[:8], KEY[-8:], "hello-berth", "hush"))


def test_a_long_run_is_shortened() -> None:
    calls = [("look", {"at": "x" * 5_000}, "y" * 5_000) for _ in range(200)]
    record = record_of(replace(tool_run("Look.", calls), final="z" * 100_000))
    assert len(record["final_state"]) < MOST_STATE + 100
    assert len(record["actions"]) < 25_000
    assert "characters left out" in record["actions"]
