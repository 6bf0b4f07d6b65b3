from __future__ import annotations

import io
import sys

import pytest

from flows.commands.console import progress, say, say_text, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "total", "quiet", "said"),
    [
        ([0, *range(2, 20, 2)], 9, False, [3, 6, 9]),  # every five seconds, and at the end
        ([0, 6, 7, 8], 3, False, [1, 3]),
        ([1, 1, 1], 2, False, []),
        ([0, 10, 20, 30], 3, True, []),
    ],
    ids=["a long job", "its end", "a short job", "a quiet job"],
)
def test_a_long_job_says_every_five_seconds_how_far_it_is(
    seconds: list[float], total: int, quiet: bool, said: list[int],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("SKILLERY_QUIET", str(int(quiet)))
    clock = iter(seconds)
    with progress("answered", clock=lambda: next(clock)) as report:
        for done in range(1, total + 1):
            report(done, total)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", [f"answered {done} of {total}" for done in said])


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    with progress("answered") as report:
        report(1, 2)
    assert "answered" in screen.getvalue()
    assert "━" in screen.getvalue()
    assert "1 of 2" not in screen.getvalue()


HOSTILE = "be\x1b[31mes\x07\r\u202egnp.exe"
SHOWN = r"be\x1b[31mes\x07\r\u202egnp.exe"


def test_control_characters_of_a_name_are_printed_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"a skill: {HOSTILE}")
    table(HOSTILE, ["id"], [[HOSTILE]])
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 3
    assert not set(HOSTILE) & {*out} & {"\x1b", "\x07", "\r", "\u202e"}


def test_a_terminal_gets_lines_broken_between_words_and_ids_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    doc_id = f"owner/{'long-' * 20}repository/skill"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    say("Grow tomatoes from seed to harvest in beds, pots or a small greenhouse, and tell trouble", indent=4)
    say(f"near-identical: {doc_id}")
    assert screen.getvalue().splitlines() == [
        "    Grow tomatoes from seed to harvest in beds, pots or a small greenhouse, and",
        "    tell trouble",
        "near-identical:",
        doc_id,
    ]


def test_a_text_is_escaped_for_a_terminal_and_left_alone_for_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for out, expected in ((Terminal(), SHOWN), (io.StringIO(), HOSTILE)):
        monkeypatch.setattr(sys, "stdout", out)
        say_text(f"Step 1\n\t{HOSTILE}")
        assert out.getvalue() == f"Step 1\n\t{expected}\n"
