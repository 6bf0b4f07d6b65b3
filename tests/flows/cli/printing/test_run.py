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
    return {"rank": 1, "doc_id": doc_id, "name": "name", "description": description, "folded": [], **origin}


def test_what_looks_like_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"query": "[/b] :bee: [red]pasta\\[", "results": [result("a/[b]/c", "[/i] :bug: soup\\")]}
    printing.print_search({**answer, "took_ms": 1.0})
    out = capsys.readouterr().out
    for text in ("[/b] :bee: [red]pasta\\[\n", " a/[b]/c\n", " [/i] :bug: soup\\\n"):
        assert text in out


def test_ids_and_queries_are_whole_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    doc_id, query = f"owner/{'long-' * 60}repository/skill", "many words " * 40 + "end"
    printing.print_search({"query": query, "results": [result(doc_id, "two\nlines")], "took_ms": 1.0})
    out = capsys.readouterr().out
    assert f"  {doc_id}\n" in out
    assert f"{query}\n" in out
    assert "    two lines\n    from dir:shelf, licence MIT, commit 0123456789ab\n" in out


def test_a_score_is_explained_by_the_parts_that_count(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"lexical": 3.4, "whole": 0.96, "named": 0.0, "facets": -0.004}
    found = {**result("a/b/c", "soup"), "score": 4.356, "parts": parts, "folded": ["a/b/d"]}
    printing.print_search({"query": "soup", "results": [found], "took_ms": 1.0})
    out = capsys.readouterr().out
    assert "    4.36 = lexical 3.40 + whole 0.96\n    near-identical: a/b/d\n" in out


def test_a_context_is_printed_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    context = "\tindented [/b] :bee:\n" + "word " * 100 + "\n| a |   b |  "
    origin = "https://example.org/" + "x" * 200
    printing.print_page({**PAGE, "context": context, "url": origin})
    out = capsys.readouterr().out
    assert out.startswith(context + "\n")
    assert f"a/b/c from {origin}, licence unknown\n" in out
