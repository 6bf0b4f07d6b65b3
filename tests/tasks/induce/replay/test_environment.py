from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import EnvironmentStopped, EnvironmentUnusable
from tasks.induce.replay.environment import CommandEnvironment, LiveAnswer
from tasks.induce.replay.line_process import LineProcess
from tasks.induce.trajectories.record import Action
from tests.support.induce.lending import lending

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
