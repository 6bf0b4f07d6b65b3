from __future__ import annotations

from typing import Any

import pytest

from flows.cli.printing import run as printing

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
    assert "nearest" not in capsys.readouterr().out


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
