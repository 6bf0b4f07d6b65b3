"""Documents cut line by line, stand-ins for the models, and a root that keeps an LLM's answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.root import Root
from storage.schemas import Node
from tasks.retrieve.paging.types import PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer()


@pytest.fixture
def encoder() -> WordEncoder:
    return WordEncoder()


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    with Answers(Root(tmp_path / "root")) as kept:
        yield kept


@pytest.fixture
def by_line() -> Callable[[str], PagedDocument]:
    """Cut a body into one node a line that is neither blank nor a heading; no vectors."""

    def cut(body: str) -> PagedDocument:
        nodes: list[Node] = []
        for match in re.finditer(r"^[ ]*([^#\s].*)$", body, re.MULTILINE):
            ordinal, (start, end) = len(nodes), match.span(1)
            tokens = WordTokenizer().count([match[1]])[0]
            nodes.append(
                Node(
                    node_id=f"guide#{ordinal}",
                    doc_id="guide",
                    ordinal=ordinal,
                    node_type="step",
                    heading_path=(),
                    lead_in=None,
                    block="prose",
                    start=start,
                    end=end,
                    text=match[1],
                    n_tokens=tokens,
                    classifier="by-hand",
                    confidence=1.0,
                )
            )
        return PagedDocument("guide", body, nodes)

    return cut
