from __future__ import annotations

import pytest

from tasks.evaluate.measures.evidence import EvidenceQuery, read_documents
from tasks.evaluate.paging.bench import PagingBench, Remembering, body_of, prepare_all
from tasks.evaluate.paging.fit import body_digest
from tasks.evaluate.paging.held_out import fitted_among, fitted_digests, held_out_rows
from tasks.evaluate.paging.report import HELD_OUT
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_bench import AllConcepts
from tests.support.paging.paging_workshop import workshop
from tests.support.paths import SHARED

BENCH = SHARED / "bench/paging"


def bench(documents: int) -> PagingBench:
    texts = {f"d{n}": workshop(f"w{n}", 3) for n in range(documents)}
    queries = [
        EvidenceQuery(f"q{n}", f"d{n}", "grease the anvil handle", ((f"every 3 weeks with w{n}anvil1 wax",),))
        for n in range(documents)
    ]
    encoder, tokenizer = Remembering(WordEncoder()), WordTokenizer()
    ready = prepare_all(texts, queries, encoder=encoder, tokenizer=tokenizer, classifier=AllConcepts())
    return PagingBench(ready, queries, encoder, tokenizer)


def test_every_request_is_paged_by_a_scorer_that_never_saw_its_document() -> None:
    steps: list[tuple[int, int]] = []

    rows = held_out_rows(bench(18), (None, 0.3), lambda done, total: steps.append((done, total)))

    assert [(row["method"], row["budget"], row["queries"]) for row in rows] == [
        (HELD_OUT, None, 18),
        (HELD_OUT, 0.3, 18),
    ]
    assert steps == [(n, 36) for n in range(1, 37)]
    # Where the same sentence answers in every document, the others teach it.
    assert rows[1]["sufficient"] == 1.0
    assert rows[1]["token_reduction"] >= 0.7


def test_too_few_documents_are_not_fitted_on() -> None:
    assert held_out_rows(bench(17), (None,), lambda _done, _total: None) == []


def test_a_document_that_the_packaged_scorer_never_saw_is_not_counted() -> None:
    assert len(fitted_digests()) > 0
    assert fitted_among(bench(2).documents.values()) == 0


@pytest.mark.slow
def test_the_documents_that_the_packaged_scorer_was_fitted_on_are_known() -> None:
    if not BENCH.exists():
        pytest.skip("the shared paging bench is not on this machine")
    texts = read_documents(BENCH / "documents.jsonl")
    assert {body_digest(body_of(text)) for text in texts.values()} <= fitted_digests()
