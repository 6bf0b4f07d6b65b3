"""Documents cut into nodes, and prepared, for the tests of paging."""

from __future__ import annotations

from dataclasses import replace

from storage.schemas import Node
from tasks.parse.segment.segment import segment
from tasks.retrieve.paging.facets import ready_for
from tasks.retrieve.paging.types import PagedDocument, Ready, make_ready
from tests.support.models.word_models import WordEncoder, WordTokenizer

CODE = (
    "```python\n"
    + "\n\n".join(f"def step_{n}():\n    stir(pot, {n} * 10, gently=True)" for n in range(8))
    + "\n```"
)


TABLE = "| soup | minutes |\n|---|---|\n" + "\n".join(f"| leek and potato {n} | {n} |" for n in range(12))


PROSE = " ".join(f"Simmer batch {n} until the spoon stands up in it and nobody complains." for n in range(9))


def nodes_of(body: str) -> list[Node]:
    counts = WordTokenizer()
    return [
        Node(
            f"soup#{f.ordinal}", "soup", f.ordinal, "step", f.heading_path, f.lead_in, f.block, f.start,
            f.end, f.text, counts.count([f.text])[0], "by-hand", 1.0,
        )
        for f in segment(body).fragments
    ]  # fmt: skip


KITCHEN = f"""\
# Kitchen

{PROSE}

## Timer

Set the timer from code:

{CODE}

## Soups

{TABLE}

## Cleaning

- Scrub the **copper** pan with lemon and salt.
- Never put knives into the machine.
"""


DOCUMENT = PagedDocument("soup", KITCHEN, nodes_of(KITCHEN))


FACETS_READY = replace(DOCUMENT, ready=ready_for(DOCUMENT, encoder=WordEncoder(), tokenizer=WordTokenizer()))


PARTS = ("# Soup", PROSE, "## Code", "Run this:", CODE, "## Table", TABLE, "### Rest", "- salt\n- dill\n")


BODY = "\n\n".join(PARTS)


def ready_of(body: str) -> Ready:
    nodes = nodes_of(body)
    vectors = WordEncoder().encode([n.text for n in nodes])
    return make_ready(body, nodes, vectors, [b""] * len(nodes), WordTokenizer())


READY = ready_of(BODY)
