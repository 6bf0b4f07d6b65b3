"""A process that is asked line by line, and the environment behind it."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
import time
from pathlib import Path

import pytest

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.replay.environment import CommandEnvironment, LineProcess, LiveAnswer
from tasks.induce.trajectories.record import Action
from tests.support.induce.lending import lending

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
    assert caught.value.command == command
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
        ("hang", EnvironmentStopped, "no answer within 1 s"),
        ("nonsense", EnvironmentUnusable, "answered step with 'Welcome!', which is no JSON"),
        ("no-object", EnvironmentUnusable, r"'\[1\]', which is no object"),
        ("no-text", EnvironmentUnusable, "no observation that is a text"),
        ("two-lines", EnvironmentUnusable, "more than one line"),
        ("flood", EnvironmentUnusable, "more than 200,000 bytes"),
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
