"""A process that is asked line by line, and the environment behind it."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.replay.command import CommandReplay
from tasks.induce.replay.environment import CommandEnvironment, LineProcess, LiveAnswer
from tasks.induce.replay.window import Broken, SourceWindow, call_at, crossed, source_windows
from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction
from tasks.induce.skills.skill import actions_of
from tasks.induce.skills.windows import misfit
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action
from tests.support.induce.lending import lending
from tests.support.induce.recordings import mails, recorded, renewal, whole, windows_of
from tests.support.induce.runs import add_bed

ECHO = (
    "import os, sys\nfor line in sys.stdin: print(repr((line, sorted(os.environ), os.getcwd())), flush=True)"
)


def python(script: str) -> str:
    return shlex.join([sys.executable, "-c", script])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"


def test_a_line_is_answered_by_a_line_in_its_folder_with_no_variables_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_API_KEY", "secret")
    with LineProcess(python(ECHO), tmp_path) as process:
        answer = process.ask("hello")
    assert "'hello\\n'" in answer
    assert str(tmp_path) in answer
    assert "HOME" in answer
    assert "SKILLERY" not in answer


def test_a_long_line_is_answered_by_a_long_one(tmp_path: Path) -> None:
    with LineProcess(
        python("import sys\nfor line in sys.stdin: print(line, end='', flush=True)"), tmp_path
    ) as process:
        assert process.ask("x" * 1_000_000) == "x" * 1_000_000
        assert process.ask("y") == "y"


def test_much_error_output_holds_up_no_answer(tmp_path: Path) -> None:
    loud = "import sys\nfor line in sys.stdin: sys.stderr.write('e' * 300_000); print('heard', flush=True)"
    with LineProcess(python(loud), tmp_path) as process:
        assert [process.ask("a"), process.ask("b")] == ["heard", "heard"]


def test_a_shell_is_never_started(tmp_path: Path) -> None:
    with LineProcess(f"{python(ECHO)} ; touch {tmp_path}/touched", tmp_path) as process:
        process.ask("hello")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("script", "kind", "reason", "detail"),
    [
        ("import sys; sys.exit('no licence')", EnvironmentStopped, "ended", "exit code 1.*no licence"),
        ("import time; time.sleep(60)", EnvironmentStopped, "time", "no answer within 0.5 s"),
        ("import time; input()\nwhile True: print(end='.', flush=True); time.sleep(0.05)", EnvironmentStopped,
         "time", "no answer within"),
        ("input()\nwhile True: print(end='x' * 65536)", EnvironmentUnusable, "size", "more than 100,000"),
        ("input(); print('a\\nb'); input()", EnvironmentUnusable, "answer", "more than one line"),
        ("import os; input(); os.write(1, b'\\xff\\n'); input()", EnvironmentUnusable, "answer", "UTF-8"),
    ],
    ids=["died", "hangs", "trickles", "floods", "two-lines", "no-text"],
)  # fmt: skip
def test_a_process_that_fails_is_an_error_that_names_it_and_is_ended(
    tmp_path: Path, script: str, kind: type[EnvironmentStopped], reason: str, detail: str
) -> None:
    began, command = time.monotonic(), python(script)
    with (
        LineProcess(command, tmp_path, seconds=0.5, most_bytes=100_000) as process,
        pytest.raises(kind, match=detail) as caught,
    ):
        process.ask("hello")
    assert caught.value.about == command
    assert caught.value.reason == reason
    assert str(caught.value).startswith(command)
    assert time.monotonic() - began < 10
    with pytest.raises(EnvironmentStopped, match="ended already"):
        process.ask("again")


def test_what_the_process_started_ends_with_it(tmp_path: Path) -> None:
    script = (
        "import json, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "for line in sys.stdin: print(json.dumps(child.pid), flush=True)"
    )
    with LineProcess(python(script), tmp_path) as process:
        child = json.loads(process.ask("who?"))
        assert is_running(child)
    for _ in range(100):
        if not is_running(child):
            break
        time.sleep(0.02)
    assert not is_running(child)


def test_a_command_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnusable, match="cannot be started"):
        LineProcess("no-such-command-here", tmp_path)
    with pytest.raises(WrongInput, match="no command line"):
        LineProcess("python 'unfinished", tmp_path)
    with pytest.raises(WrongInput, match="empty"):
        LineProcess("  ", tmp_path)
    with pytest.raises(WrongInput, match="no such folder"):
        LineProcess("python", tmp_path / "nowhere")


def test_a_line_that_nothing_asked_for_is_no_answer(tmp_path: Path) -> None:
    script = "print(1, flush=True); input(); print(2, flush=True); input()"
    with LineProcess(python(script), tmp_path) as process:
        select.select([process.output], [], [])
        with pytest.raises(EnvironmentUnusable, match="wrote '1' before it was asked"):
            process.ask("hello")


GET_LOAN = Action("get_loan", {"loan_id": "L11"})


def test_an_environment_is_reset_stepped_and_told_from_others(tmp_path: Path) -> None:
    with LineProcess(lending(), tmp_path) as process:
        environment = CommandEnvironment(process)
        assert environment.reset("lending") == LiveAnswer("", None)
        before = environment.digest()
        found = environment.step(GET_LOAN)
        renewed = environment.step(Action("renew_loan", {"loan_id": "L11"}))
        after = environment.digest()
        environment.reset("lending")
        assert found.result("get_loan")["copies"] == ["L11a", "L11b"]
        assert renewed.error is None
        assert before != after
        assert environment.digest() == before


def test_an_action_that_fails_gives_nothing(tmp_path: Path) -> None:
    with LineProcess(lending(), tmp_path) as process:
        environment = CommandEnvironment(process)
        environment.reset("lending")
        failed = environment.step(Action("get_loan", {"loan_id": "L99"}))
    assert failed.error == "there is no 'L99'"
    assert failed.result("get_loan") is None


def test_a_result_is_read_with_and_without_its_tools_name() -> None:
    assert LiveAnswer('get_loan returned: {"a": 1}', None).result("get_loan") == {"a": 1}
    assert LiveAnswer('{"a": 1}', None).result("get_loan") == {"a": 1}
    assert LiveAnswer("17", None).result("get_loan") == "17"


@pytest.mark.parametrize(
    ("mischief", "kind", "detail"),
    [
        ("die", EnvironmentStopped, "the library burned down"),
        ("nonsense", EnvironmentUnusable, "answered step with 'Welcome!', which is no JSON"),
        ("no-object", EnvironmentUnusable, r"'\[1\]', which is no object"),
        ("no-text", EnvironmentUnusable, "no observation that is a text"),
    ],
)
def test_mischief_of_the_process_is_an_error_that_names_its_command(
    tmp_path: Path, mischief: str, kind: type[Exception], detail: str
) -> None:
    with LineProcess(lending(mischief), tmp_path, seconds=1.0, most_bytes=200_000) as process:
        environment = CommandEnvironment(process)
        environment.reset("lending")
        with pytest.raises(kind, match=detail) as caught:
            environment.step(GET_LOAN)
    assert str(caught.value).startswith(lending(mischief))


SKILLS = [*windows_of(renewal("ada")), *windows_of(renewal("cleo", 1))]


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandReplay]:
    with LineProcess(lending(), tmp_path_factory.mktemp("lending")) as process:
        yield CommandReplay(CommandEnvironment(process))


def replayed(replay: CommandReplay, body: Body, window: SourceWindow) -> Broken | None:
    call = call_at(body, window)
    return call if isinstance(call, Broken) else replay.replay(body, window, call)


def test_each_skill_leaves_the_library_as_its_window_did(replay: CommandReplay) -> None:
    assert [replayed(replay, *each) for each in SKILLS] == [None] * len(SKILLS)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(SKILLS), max_size=4))
def test_no_replay_changes_what_a_later_one_finds(
    replay: CommandReplay, held: list[tuple[Body, SourceWindow]]
) -> None:
    for skill, window in held:
        assert replayed(replay, skill, window) is None


def test_a_change_of_another_record_shows_in_what_is_left(replay: CommandReplay) -> None:
    skill, window = whole(renewal("ada"), 5)
    wrong = replace(
        skill[3], args=tuple((k, Const('"south"') if k == "desk" else v) for k, v in skill[3].args)
    )
    assert replayed(replay, (*skill[:3], wrong, skill[4]), window) == Broken(
        5, "the environment is left in another state"
    )


def test_a_result_that_the_skill_does_not_give_breaks_it(replay: CommandReplay) -> None:
    skill, window = whole(renewal("ada"), 3)
    wrong = replace(skill[2], args=(("loan_id", Result(1, ("loans", 1))),))
    assert replayed(replay, (*skill[:2], wrong), window) == Broken(
        3, "what get_loan of step 2 gave is not given"
    )


def test_a_skill_that_ends_otherwise_than_the_window_is_broken(replay: CommandReplay) -> None:
    skill, window = whole(renewal("ada"), 3)
    assert replayed(replay, (*skill, skill[1]), window) == Broken(
        3, "get_member gives another result than the window's end"
    )


def test_another_later_result_breaks_a_skill(replay: CommandReplay) -> None:
    did = [
        ("get_loan", {"loan_id": "L11"}),
        ("renew_loan", {"loan_id": "L11"}),
        ("get_loan", {"loan_id": "L12"}),
        ("renew_loan", {"loan_id": "L12"}),
    ]
    skill, window = whole(recorded("two", "Renew L11 and L12", did), 3)
    assert replayed(
        replay, (*skill[:2], replace(skill[1], args=(("loan_id", Const('"L11"')),)), skill[2]), window
    ) == Broken(4, "renew_loan of step 3 gives another result afterwards")


def test_an_error_that_the_original_had_not_breaks_a_skill(replay: CommandReplay) -> None:
    skill, window = whole(renewal("ada"), 3)
    wrong = replace(skill[2], args=(("loan_id", Const('"L99"')),))
    assert replayed(replay, (*skill[:2], wrong), window) == Broken(2, "get_loan fails: there is no 'L99'")


def test_a_reading_may_be_left_out_where_it_was_done_before(replay: CommandReplay) -> None:
    did = [("get_loan", {"loan_id": loan}) for loan in ("L11", "L12", "L11")]
    _, window = whole(recorded("again", "What of L11 and L12?", did), 3)
    body = tuple(
        SkillAction("get_loan", None, None, (("loan_id", Const(f'"{loan}"')),)) for loan in ("L12", "L11")
    )
    assert replayed(replay, body, window) is None
    assert replayed(replay, body[1:], window) == Broken(1, "what get_loan of step 1 gave is not given")


def test_what_the_recorded_results_alone_hold_is_not_replayed_here(replay: CommandReplay) -> None:
    skill, window = whole(renewal("ada"), 4)
    steps = list(window.steps)
    steps[2] = replace(steps[2], result={**steps[2].result, "due": "tomorrow"})
    due = replace(skill[3], args=(*skill[3].args[:2], ("desk", Result(2, ("due",))), skill[3].args[3]))
    assert not replay.takes((*skill[:3], due), replace(window, steps=steps))
    assert replay.takes(skill, replace(window, steps=steps))


def test_pages_foreign_domains_and_windows_that_fail_here_are_not_taken(replay: CommandReplay) -> None:
    body, window = whole(renewal("ada"), 3)
    steps = list(window.steps)
    steps[2] = replace(steps[2], action=replace(steps[2].action, args={"loan_id": "L99"}))
    assert replay.takes(body, window)
    assert not replay.takes(*whole(mails(), 3))
    assert not replay.takes(body, replace(window, trajectory_id="foreign", domain="cinema"))
    assert not replay.takes(body, replace(window, trajectory_id="failing", steps=steps))


def test_what_speaks_to_people_is_left_out_where_there_are_none(tmp_path: Path) -> None:
    with LineProcess(lending("alone"), tmp_path) as process:
        replay = CommandReplay(CommandEnvironment(process))
        assert [replayed(replay, *each) for each in SKILLS] == [None] * len(SKILLS)


def test_an_environment_that_a_reset_does_not_reset_is_unusable(tmp_path: Path) -> None:
    skill, window = whole(renewal("ada"), 2)
    after_the_change = replace(window, start=4, length=1)
    with LineProcess(lending("forget"), tmp_path) as process:
        replay = CommandReplay(CommandEnvironment(process))
        with pytest.raises(EnvironmentUnusable, match="other answers to the same actions of renewal-ada-0"):
            replay.replay(skill, after_the_change, {})


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
