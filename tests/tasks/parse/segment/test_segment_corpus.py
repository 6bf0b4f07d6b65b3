from __future__ import annotations

import json
import re

import polars as pl
import pytest

from tasks.parse.segment.headings import headings_between
from tasks.parse.segment.segment import segment
from tests.support.paths import SHARED
from tests.support.texts.segment_invariants import check_invariants

CORPUS = SHARED / "corpus/skills.parquet"
PAGING = SHARED / "bench/paging"
_FRONT_MATTER = re.compile(r"\A---\r?\n.*?^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)


def fold(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not CORPUS.exists(), reason="the shared corpus is not here")
def test_every_document_of_the_corpus_is_taken_apart_exactly() -> None:
    for content in pl.read_parquet(CORPUS, columns=["content"])["content"]:
        body = _FRONT_MATTER.sub("", content, count=1)
        found = segment(body)
        check_invariants(body, found)
        assert headings_between(body, [(f.start, f.end) for f in found.fragments]) == found.headings


@pytest.mark.slow
@pytest.mark.skipif(not PAGING.exists(), reason="the shared paging bench is not here")
def test_fragments_and_headings_hold_all_evidence() -> None:
    contexts = {}
    for line in (PAGING / "documents.jsonl").read_text().splitlines():
        document = json.loads(line)
        body = _FRONT_MATTER.sub("", document["content"], count=1)
        found = segment(body)
        pieces = [*((f.start, f.text) for f in found.fragments)]
        pieces += [(h.start, body[h.start : h.end]) for h in found.headings]
        contexts[document["doc_id"]] = fold("\n".join(text for _, text in sorted(pieces)))

    queries = [json.loads(line) for line in (PAGING / "queries.jsonl").read_text().splitlines()]
    missed = [
        query["query_id"]
        for query in queries
        for item in query["evidence"]
        if not any(fold(span) in contexts[query["doc_id"]] for span in item["any_of"])
    ]
    assert queries
    assert missed == []
