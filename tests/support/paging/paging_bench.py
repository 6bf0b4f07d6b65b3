"""A small bench of paging: documents, requests and a classifier."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.bench import PagingBench, measure, prepare_all, require_paging
from tasks.evaluate.paging.outcomes import rows_of
from tasks.models.protocols import Encoder
from tasks.parse.classify.protocol import FragmentInContext, Typed
from tests.support.models.word_models import WordEncoder, WordTokenizer

TENT = """\
---
name: tent
description: Pitching a tent.
---
# Tent

Choose flat ground without stones.

## Pegs

Drive pegs at forty five degrees.
Replace bent pegs.

## Storm

Add guy lines on the windward side.
"""


DOCUMENTS = {"tent": TENT, "unasked": "Never read."}


QUERIES = [
    EvidenceQuery("q1", "tent", "drive pegs at which angle", (("forty five degrees",),)),
    EvidenceQuery("q2", "tent", "add guy lines", (("windward side",), ("not in the text",))),
]


class AllConcepts:
    name = "all-concepts"

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        return [Typed("concept", 0.5) for _ in fragments]


def paged(
    documents: Mapping[str, str],
    queries: Sequence[EvidenceQuery],
    methods: Sequence[str],
    budgets: Sequence[float | None] = (None,),
    *,
    encoder: Encoder | None = None,
    clock: Callable[[], float] = time.perf_counter,
    step: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Return a row for each method and budget."""
    models, tokenizer = encoder or WordEncoder(), WordTokenizer()
    require_paging(queries, methods)
    ready = prepare_all(documents, queries, encoder=models, tokenizer=tokenizer, classifier=AllConcepts())
    bench = PagingBench(ready, queries, models, tokenizer, clock)
    return rows_of(measure(bench, list(product(methods, budgets)), step))


_THINGS = ("anvil", "bellows", "chisel", "drill", "easel", "funnel", "gimlet", "hammer")


_DEEDS = ("Polish", "Grease", "Sharpen", "Store", "Measure")


def workshop(name: str, tools: int) -> str:
    """Return a guide of 8 sections of so many passages each."""
    parts = [f"---\nname: {name}\n---\n# Workshop {name}"]
    for thing in _THINGS:
        parts.append(f"## The {thing}")
        parts += [
            f"- {_DEEDS[n % 5]} the {thing} handle every {n + 2} weeks with {name}{thing}{n} wax."
            for n in range(tools)
        ]
    return "\n".join(parts) + "\n"
