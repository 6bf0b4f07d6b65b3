"""A plan as a person reads it: in order, in a terminal of 80 columns, with each gap and each rest named."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from flows.cli.printing.plan import print_plan
from tests.support.hand_plans import hand_plan, party


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def left(text: str, reason: str) -> dict[str, Any]:
    return {"text": text, "span": [0, len(text)], "reason": reason}


def test_a_plan_is_this_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan({**party(), "left_out": [left("I like parties", "context"), left("…", "too-long")]})

    assert (
        capsys.readouterr().out
        == """\
 1. fetch the guest list
    side by side with 2, 3
    shelf/skill-1
    70% sure, from dir:shelf, licence MIT
 2. order flour
    side by side with 1, 3
    shelf/skill-2
    70% sure, from dir:shelf, licence MIT
 3. look up the weather
    side by side with 1, 2
    nothing served fits this step
    nearest: shelf/other-3-0
    nearest: shelf/other-3-1
    nearest: shelf/other-3-2
 4. bake
    after 2
    shelf/skill-4
    70% sure, from dir:shelf, licence MIT
 5. move it indoors
    after 3, 4
    only if it rains
    shelf/skill-5
    70% sure, from dir:shelf, licence MIT
 6. invite all
    after 1, 5
    shelf/skill-6
    70% sure, from dir:shelf, licence MIT
left out, as it asks for nothing: I like parties
left out, as the task is too long to be read to its end: …
12 ms; what is chosen has 1,200 tokens, all that is served 9,000
"""
    )


def test_an_unsure_step_names_others(capsys: pytest.CaptureFixture[str]) -> None:
    plan = hand_plan(["bake"])
    plan["steps"][0]["confidence"] = 0.4
    print_plan(plan)
    said = capsys.readouterr().out
    assert "40% sure" in said
    assert said.count("    or: shelf/other-1-") == 3


def test_a_plan_without_steps_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan({**hand_plan([]), "left_out": [left("thanks", "no-request")]})
    said = capsys.readouterr().out
    assert said.startswith("no step: ")
    assert "left out, as it asks for nothing: thanks\n" in said


def test_in_80_columns_no_word_and_no_id_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    long = "fetch the quarterly figures of every region and each of its branches " * 6
    doc_id = "local/marketplace/" + "a-rather-long-name/" * 5 + "skill"
    plan = hand_plan(
        [long, "bake"], [(1, 2, "condition")], conditions={2: f"if {long[:106]}"}, ids={1: doc_id}
    )
    plan["left_out"] = [left(long, "context")]
    plan["steps"][1]["page"] = {"context": long, "tokens": 90, "document_tokens": 900, "nodes": ["d#1"]}
    print_plan(plan)
    lines = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()
    assert [line for line in lines if len(line) > 80] == [f"    {doc_id}"]
    words = {*long.split(), "1.", "if", "only", "left", "out,", "as", "it", "asks", "for", "nothing:"}
    told = [line.strip("│ ") for line in lines if "regi" in line or "bran" in line]
    # A text that is too long is cut, and ends in an ellipsis.
    assert {word for line in told for word in line.split() if not word.endswith("…")} <= words
    assert len([line for line in lines if line.startswith("    │ ")]) > 4


def test_a_page_of_others_is_marked_and_its_control_characters_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = hand_plan(["bake"])
    context = "# Bread\n\n\tknead\x1b[31m [/b] :bee:"
    plan["steps"][0]["page"] = {"context": context, "tokens": 9, "document_tokens": 90, "nodes": ["d#1"]}
    plan["tokens"]["pages"] = 9
    print_plan(plan)
    said = capsys.readouterr().out
    assert "    third-party text of shelf/skill-1 from dir:shelf, licence MIT, 9 of 90 tokens:\n" in said
    assert "    │ # Bread\n    │ \n    │     knead\\x1b[31m [/b] :bee:\n" in said
    assert said.endswith("has 1,200 tokens, their pages 9, all that is served 9,000\n")


def test_a_page_that_is_kept_back_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    plan = hand_plan(["bake"])
    plan["steps"][0] |= {"page": None, "page_error": "shelf/skill-1 is withheld"}
    print_plan(plan)
    assert "    no page: shelf/skill-1 is withheld\n" in capsys.readouterr().out
