from __future__ import annotations

import io
from typing import Any

import pytest

from flows.cli import print_run as printing
from flows.commands.console import folded

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
    for text in ("[/b] :bee: [red]pasta\\[\n", "1  a/[b]/c\n", "     [/i] :bug: soup\\\n"):
        assert text in out


def test_ids_and_queries_are_whole_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    doc_id, query = f"owner/{'long-' * 60}repository/skill", "many words " * 40 + "end"
    printing.print_search({"query": query, "results": [result(doc_id, "two\nlines")], "took_ms": 1.0})
    out = capsys.readouterr().out
    assert f" {doc_id}\n" in out
    assert f"{query}\n" in out
    assert " two lines\n" in out


def test_a_context_is_printed_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    context = "\tindented [/b] :bee:\n" + "word " * 100 + "\n| a |   b |  "
    origin = "https://example.org/" + "x" * 200
    printing.print_page({**PAGE, "context": context, "url": origin})
    out = capsys.readouterr().out
    assert out.startswith(context + "\n")
    assert f"a/b/c from {origin}, licence unknown\n" in out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_broken_between_words_and_ids_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    doc_id = "owner/" + "x" * 50
    line = f"{'words ' * 9}{doc_id} {'more ' * 9}"

    broken = folded(line, _Terminal(), "  ").split("\n")

    assert all(len(part) <= 40 for part in broken if doc_id not in part)
    assert f"  {doc_id}" in broken
    assert " ".join(" ".join(broken).split()) == line.strip()
    assert folded(line, io.StringIO(), "  ") == f"  {line}"
