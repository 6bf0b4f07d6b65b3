from __future__ import annotations

from typing import Any

import pytest

from flows.cli import print_run as printing

PAGE: dict[str, Any] = {
    "doc_id": "a/b/c", "context": "x", "nodes": [], "tokens": 1, "document_tokens": 2, "took_ms": 1.0,
    "method": "mmr", "url": None, "source": "dir:shelf", "licence": None, "commit": None,
}  # fmt: skip


def result(doc_id: str, description: str) -> dict[str, Any]:
    return {
        "rank": 1,
        "doc_id": doc_id,
        "name": "name",
        "description": description,
        "folded": [],
        "source": "sample",
        "licence": "MIT",
    }


def test_what_looks_like_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"query": "[/b] :bee: [red]pasta\\[", "results": [result("a/[b]/c", "[/i] :bug: soup\\")]}
    printing.print_search({**answer, "took_ms": 1.0})
    out = capsys.readouterr().out
    for text in ("[/b] :bee: [red]pasta\\[\n", " a/[b]/c ", " [/i] :bug: soup\\ "):
        assert text in out


def test_ids_and_queries_are_whole_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    doc_id, query = f"owner/{'long-' * 60}repository/skill", "many words " * 40 + "end"
    printing.print_search({"query": query, "results": [result(doc_id, "two\nlines")], "took_ms": 1.0})
    out = capsys.readouterr().out
    assert f" {doc_id} " in out
    assert f"{query}\n" in out
    assert " two lines " in out


def test_a_context_is_printed_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    context = "\tindented [/b] :bee:\n" + "word " * 100 + "\n| a |   b |  "
    origin = "https://example.org/" + "x" * 200
    printing.print_page({**PAGE, "context": context, "url": origin})
    out = capsys.readouterr().out
    assert out.startswith(context + "\n")
    assert f"a/b/c from {origin}, licence unknown\n" in out
