from __future__ import annotations

import pytest

from tests.support.command import Ask


@pytest.mark.parametrize(
    ("command", "setting", "said"),
    [
        ("train pairs --corpus a --out b", None, "`train pairs` was deleted: `skillery train routing`"),
        ("status", "SKILLERY_TRAINING_DISTILLED", "SKILLERY_TRAINING_DISTILLED was deleted: leave it out"),
    ],
)
def test_what_was_deleted_ends_with_2_and_says_what_to_use(
    command: str, setting: str | None, said: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv(setting, "1")

    code, printed, told = ask(*command.split())

    assert (code, printed) == (2, "")
    assert said in told
    assert told.count("\n") == 1
