"""Prepared documents for the tests of selection."""

from __future__ import annotations

from tasks.retrieve.paging.types import Ready, make_ready
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_nodes import CODE, PROSE, TABLE, nodes_of

PARTS = ("# Soup", PROSE, "## Code", "Run this:", CODE, "## Table", TABLE, "### Rest", "- salt\n- dill\n")


BODY = "\n\n".join(PARTS)


def ready_of(body: str) -> Ready:
    nodes = nodes_of(body)
    vectors = WordEncoder().encode([n.text for n in nodes])
    return make_ready(body, nodes, vectors, [b""] * len(nodes), WordTokenizer())


READY = ready_of(BODY)
