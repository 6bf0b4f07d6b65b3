from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.commands.classify import classify_file
from flows.commands.console import progress, say, say_text, table
from flows.settings import load_settings
from storage.root import Root
from tests.support.command import Ask
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_a_long_job_says_every_five_seconds_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with progress("answered", clock=lambda: now) as report:
        for done in range(1, 10):
            now += 2
            report(done, 9)
    assert lines(capsys) == ["answered 3 of 9", "answered 6 of 9", "answered 9 of 9"]


def test_its_end_is_said_too(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 6.0, 7.0, 8.0])
    with progress("typed", clock=lambda: next(seconds)) as report:
        for done in (1, 2, 3):
            report(done, 3)
    assert lines(capsys) == ["typed 1 of 3", "typed 3 of 3"]


def test_a_short_job_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("answered", clock=lambda: 1.0) as report:
        report(1, 2)
        report(2, 2)
    assert lines(capsys) == []


def test_a_quiet_job_says_nothing_however_long_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKILLERY_QUIET", "1")
    seconds = iter(range(0, 1000, 10))
    with progress("answered", clock=lambda: next(seconds)) as report:
        for done in (1, 2, 3):
            report(done, 3)
    assert lines(capsys) == []


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    with progress("answered") as report:
        report(1, 2)
    assert "answered" in screen.getvalue()
    assert "━" in screen.getvalue()
    assert "1 of 2" not in screen.getvalue()


def test_typing_reports_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flows.commands.console._SECONDS_BETWEEN_LINES", 0.0)
    fragments = tmp_path / "f.jsonl"
    row = {"id": "a", "heading_path": [], "block": "prose", "text": "Open the hive."}
    fragments.write_text(3 * (json.dumps(row) + "\n"), "utf-8")
    classify_file(Root(tmp_path), load_settings(), fragments, tmp_path / "t.jsonl", "local")
    assert lines(capsys)[-1] == "typed 3 of 3"


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


def test_a_skill_with_a_hostile_folder_name_is_found_and_read_without_harm(
    ask: Ask, skill_root: Callable[[dict[str, str]], SkillRoot]
) -> None:
    root = skill_root(SKILLS)
    root.write(HOSTILE.replace("\r", ""), SKILLS["bees"].replace("name: bees", "name: wasps"))
    root.remove("bees")
    root.publish()
    at = ["--root", root.root.uri]
    [found] = ask.told("search", "keep bees", "-k", "1", *at)["results"]
    for done in (ask("search", "keep bees", *at), ask("page", found["doc_id"], "sugar syrup", *at)):
        assert done.code in (0, None)
        assert not {"\x1b", "\x07", "\u202e"} & {*done.stdout}
    assert "\x1b" in found["doc_id"]
