"""A small bench of paging: documents, requests and a classifier."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.parse.classify.protocol import FragmentInContext, Typed

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
