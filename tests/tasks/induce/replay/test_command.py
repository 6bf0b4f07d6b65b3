"""A process that is asked line by line, and the environment behind it."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
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
from tasks.induce.replay.window import Broken, SourceWindow, call_at, crossed
from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction, Source
from tasks.induce.skills.skill import actions_of
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action
from tests.support.induce.lending import lending
from tests.support.induce.recordings import mails, recorded, renewal, whole, windows_of
from tests.support.paths import PROJECT

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


def test_much_is_answered_whatever_else_is_written_and_no_shell_is_started(tmp_path: Path) -> None:
    loud = (
        "import sys\nfor line in sys.stdin: sys.stderr.write('e' * 300_000); print(line, end='', flush=True)"
    )
    with LineProcess(f"{python(loud)} ; touch {tmp_path}/touched", tmp_path) as process:
        assert [process.ask(line) for line in ("x" * 1_000_000, "y")] == ["x" * 1_000_000, "y"]
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


_STARTING = """
import signal, subprocess, sys, threading, time
from pathlib import Path
from tasks.induce.replay.environment import LineProcess, kill_all

signal.signal(signal.SIGINT, signal.default_int_handler)
started = []

class Interrupted(subprocess.Popen):
    def __init__(self, *given, **how):
        super().__init__(*given, **how)
        started.append(self)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.1)

subprocess.Popen = Interrupted
try:
    LineProcess(sys.executable + " -c 'import time; time.sleep(60)'", Path.cwd())
except KeyboardInterrupt:
    until = time.monotonic() + 10
    while time.monotonic() < until and not (started and started[0].poll()):
        kill_all()  # it may be a moment until the id is known
        time.sleep(0.02)
    print(started[0].poll())
"""


def test_a_process_is_known_that_was_just_starting_when_ctrl_c_came(tmp_path: Path) -> None:
    # In a process of its own: what the command does at Ctrl-C, once asked for here, would end this one.
    done = subprocess.run(
        [sys.executable, "-c", _STARTING], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{-signal.SIGKILL}\n", "")


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
        select.select([process._out], [], [])
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
        failed = environment.step(Action("get_loan", {"loan_id": "L99"}))
        assert (failed.error, failed.result("get_loan")) == ("there is no 'L99'", None)
        assert found.result("get_loan")["copies"] == ["L11a", "L11b"]
        assert renewed.error is None
        assert before != after
        assert environment.digest() == before


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


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(SKILLS), max_size=4))
def test_no_replay_changes_what_a_later_one_finds(
    replay: CommandReplay, held: list[tuple[Body, SourceWindow]]
) -> None:
    for skill, window in held:
        assert replayed(replay, skill, window) is None


def loan(value: Source) -> SkillAction:
    return SkillAction("get_loan", None, None, (("loan_id", value),))


def desk(action: SkillAction, value: Source) -> SkillAction:
    return replace(action, args=tuple((k, value if k == "desk" else v) for k, v in action.args))


THREE, FOUR, FIVE = (whole(renewal("ada"), length) for length in (3, 4, 5))
TWO = whole(
    recorded(
        "two", "Renew L11 and L12",
        [(name, {"loan_id": loan}) for loan in ("L11", "L12") for name in ("get_loan", "renew_loan")],
    ),
    3,
)  # fmt: skip
READ_AGAIN = whole(
    recorded("again", "What of L11 and L12?", [("get_loan", {"loan_id": f"L{n}"}) for n in (11, 12, 11)]), 3
)[1]
READS = tuple(loan(Const(f'"L{n}"')) for n in (12, 11))


@pytest.mark.parametrize(
    ("body", "window", "broken"),
    [
        pytest.param(
            (*FIVE[0][:3], desk(FIVE[0][3], Const('"south"')), FIVE[0][4]), FIVE[1],
            Broken(5, "the environment is left in another state"), id="another record",
        ),
        pytest.param(
            (*THREE[0][:2], loan(Result(1, ("loans", 1)))), THREE[1],
            Broken(3, "what get_loan of step 2 gave is not given"), id="a result is missing",
        ),
        pytest.param(
            (*THREE[0], THREE[0][1]), THREE[1],
            Broken(3, "get_member gives another result than the window's end"), id="it ends otherwise",
        ),
        pytest.param(
            (*TWO[0][:2], replace(TWO[0][1], args=(("loan_id", Const('"L11"')),)), TWO[0][2]), TWO[1],
            Broken(4, "renew_loan of step 3 gives another result afterwards"), id="a later result",
        ),
        pytest.param(
            (*THREE[0][:2], loan(Const('"L99"'))), THREE[1],
            Broken(2, "get_loan fails: there is no 'L99'"), id="an error",
        ),
        pytest.param(READS, READ_AGAIN, None, id="a reading that was done before is left out"),
        pytest.param(
            READS[1:], READ_AGAIN, Broken(1, "what get_loan of step 1 gave is not given"),
            id="another reading",
        ),
    ],
)  # fmt: skip
def test_what_is_done_otherwise_than_in_the_window_breaks_a_skill(
    replay: CommandReplay, body: Body, window: SourceWindow, broken: Broken | None
) -> None:
    assert replayed(replay, body, window) == broken


def test_what_the_recorded_results_alone_hold_is_not_replayed_here(replay: CommandReplay) -> None:
    skill, window = FOUR
    steps = list(window.steps)
    steps[2] = replace(steps[2], result={**steps[2].result, "due": "tomorrow"})
    due = desk(skill[3], Result(2, ("due",)))
    assert not replay.takes((*skill[:3], due), replace(window, steps=steps))
    assert replay.takes(skill, replace(window, steps=steps))


def test_pages_foreign_domains_and_windows_that_fail_here_are_not_taken(replay: CommandReplay) -> None:
    body, window = THREE
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


def body(*lines: str, given: str = "") -> Body:
    code = f"def skill({given}):\n" + "".join(f"    {line}\n" for line in lines)
    return actions_of(code)[1]


SHORT, MAIL = whole(renewal("ada"), 2), whole(mails(), 5)
ADA = {"email": "ada@example.com"}


@pytest.mark.parametrize(
    ("body", "window", "call"),
    [
        pytest.param(*FOUR, ADA | {"desk": "north"}, id="what was recorded"),
        pytest.param(
            *MAIL,
            {
                "checkbox": Element("6", "checkbox", "", 1), "message_text": "Gladly",
                "omar_harvest_plan_clickable": Element("5", "clickable", "omar harvest plan", 0),
            },
            id="elements of the page of the call",
        ),
        pytest.param(
            (*MAIL[0][:2], replace(MAIL[0][2], args=(("element", Arg("reply")),)), *MAIL[0][3:]), MAIL[1],
            Broken(2, "element of click is not on the page of the call"), id="an element that comes later",
        ),
        pytest.param(
            body("find_member(email=email)", "get_member(member_id=member)", given="email, member"), SHORT[1],
            Broken(1, "member_id of get_member is not known when the skill is called"),
            id="a value that is read inside the window",
        ),
        pytest.param(
            body("find_member(email=it)", "get_member(member_id=it)", given="it"), SHORT[1],
            {"it": "ada@example.com"}, id="of a parameter used twice the first value",
        ),
        pytest.param(
            body("find_member(email=email)", 'renew_loan(desk=desk, card="c")', given="email, desk"), FOUR[1],
            ADA | {"desk": "north"}, id="of fewer actions those of their names",
        ),
        pytest.param(
            body("find_member(email=email, town=it)", "get_member(member_id_from=[0])", given="email, it"),
            SHORT[1], ADA, id="not what the recording has no argument for",
        ),
    ],
)  # fmt: skip
def test_a_caller_gives(body: Body, window: SourceWindow, call: object) -> None:
    assert call_at(body, window) == call


def test_arguments_that_bear_each_others_names_are_crossed() -> None:
    crossing = body(
        "get_loan(loan_id=loan_id)", "renew_loan(desk=loan_id_2, loan_id=desk)",
        given="loan_id, loan_id_2, desk",
    )  # fmt: skip
    assert crossed(crossing) == Broken(1, "desk and loan_id of renew_loan are given each other's parameters")
    free = body("move(source=shelf, target=source)", "move(source=a, target=b)", given="shelf, source, a, b")
    assert crossed(free) is crossed(MAIL[0]) is None
