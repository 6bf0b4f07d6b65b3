"""A plan as a person reads it: in order, in a terminal of 80 columns, with each gap and each rest named."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from flows.cli.printing import run as printing
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


def test_an_unsure_step_names_others_and_a_page_that_is_kept_back_or_a_plan_without_steps_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = hand_plan(["bake"])
    plan["steps"][0] |= {"confidence": 0.4, "page": None, "page_error": "shelf/skill-1 is withheld"}
    print_plan(plan)
    said = capsys.readouterr().out
    assert "40% sure" in said
    assert said.count("    or: shelf/other-1-") == 3
    assert "    no page: shelf/skill-1 is withheld\n" in said
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


PAGE: dict[str, Any] = {
    "doc_id": "a/b/c", "context": "x", "nodes": [], "tokens": 1, "document_tokens": 2, "took_ms": 1.0,
    "method": "mmr", "url": None, "source": "dir:shelf", "licence": None,
}  # fmt: skip


def result(doc_id: str, description: str) -> dict[str, Any]:
    origin = {"source": "dir:shelf", "licence": "MIT", "commit": "0123456789abcdef"}
    told = {"name": "name", "description": description, "fit": None, "folded": []}
    return {"rank": 1, "doc_id": doc_id, **told, **origin}


def answer(query: str, *results: dict[str, Any], nothing_fits: bool | None = None) -> dict[str, Any]:
    return {"query": query, "results": results, "nothing_fits": nothing_fits, "took_ms": 1.0}


def test_each_skill_has_its_fit_beside_it_and_nothing_that_fits_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printing.print_search(answer("soup", {**result("a/b/c", "soup"), "fit": 0.914}, nothing_fits=False))
    fits = capsys.readouterr().out
    printing.print_search(answer("tax", {**result("a/b/c", "soup"), "fit": 0.021}, nothing_fits=True))
    nothing = capsys.readouterr().out
    assert "  a/b/c  fit 91%\n" in fits
    assert "seems to fit" not in fits
    assert "Nothing served seems to fit; what comes nearest:\n" in nothing
    assert "  a/b/c  fit 2%\n" in nothing
    printing.print_search(answer("tax", nothing_fits=True))
    assert capsys.readouterr().out.splitlines()[1].endswith(" ms; no skill is served that fits")


def test_what_looks_like_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_search(answer("[/b] :bee: [red]pasta\\[", result("a/[b]/c", "[/i] :bug: soup\\")))
    out = capsys.readouterr().out
    for text in ("[/b] :bee: [red]pasta\\[\n", " a/[b]/c\n", " [/i] :bug: soup\\\n"):
        assert text in out


def test_ids_and_queries_are_whole_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    doc_id, query = f"owner/{'long-' * 60}repository/skill", "many words " * 40 + "end"
    printing.print_search(answer(query, result(doc_id, "two\nlines")))
    out = capsys.readouterr().out
    assert f"  {doc_id}\n" in out
    assert f"{query}\n" in out
    assert "    two lines\n    from dir:shelf, licence MIT, commit 0123456789ab\n" in out


def test_a_score_is_explained_by_the_parts_that_count(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"lexical": 3.4, "whole": 0.96, "named": 0.0, "facets": -0.004}
    found = {**result("a/b/c", "soup"), "score": 4.356, "parts": parts, "folded": ["a/b/d"]}
    printing.print_search(answer("soup", found))
    out = capsys.readouterr().out
    assert "    4.36 = lexical 3.40 + whole 0.96\n    near-identical: a/b/d\n" in out


def test_a_context_is_printed_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    context = "\tindented [/b] :bee:\n" + "word " * 100 + "\n| a |   b |  "
    origin = "https://example.org/" + "x" * 200
    printing.print_page({**PAGE, "context": context, "url": origin})
    out = capsys.readouterr().out
    assert out.startswith(context + "\n")
    assert f"a/b/c from {origin}, licence unknown\n" in out
