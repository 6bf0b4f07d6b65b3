from __future__ import annotations

import pytest
from test_paging_evaluation import DOCUMENTS, QUERIES, AllConcepts
from word_models import WordEncoder, WordTokenizer

from tasks.evaluate.evidence import spans_in
from tasks.evaluate.paging import PagingBench, Remembering, prepare_all
from tasks.evaluate.paging_paper import TABLES
from tasks.evaluate.paging_report import report_paging
from tasks.evaluate.paging_tables import paging_markdown
from tasks.evaluate.statistics import clustered_interval, paired_bootstrap


def test_a_report_has_every_table_of_the_paper_and_a_contest_a_baseline() -> None:
    encoder, tokenizer = Remembering(WordEncoder()), WordTokenizer()
    ready = prepare_all(DOCUMENTS, QUERIES, encoder=encoder, tokenizer=tokenizer, classifier=AllConcepts())
    steps: list[tuple[int, int]] = []

    report = report_paging(PagingBench(ready, QUERIES, encoder, tokenizer), lambda a, b: steps.append((a, b)))
    text = paging_markdown(report)

    assert all(f"## {title}" in text for title in TABLES)
    assert steps[-1][0] == steps[-1][1] == len(steps)
    assert {"skillpager", "greedy-graph", "chunks"} <= {c.method for c in report.contests}
    assert all(c.default_tokens <= c.method_tokens for c in report.contests)
    assert report.outcomes.height == len(QUERIES) * len(report.rows)


def test_alike_values_of_one_document_widen_the_interval() -> None:
    values = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]

    low, high = clustered_interval(values, ["a", "a", "a", "b", "b", "b"])

    assert (low, high) == (0.0, 1.0)
    assert clustered_interval([0.5, 0.5], ["a", "b"]) == (0.5, 0.5)


def test_a_difference_that_never_turns_has_the_smallest_p() -> None:
    difference, low, high, p = paired_bootstrap([1.0] * 20, [0.0] * 20, resamples=1000)

    assert (difference, low, high) == (1.0, 1.0, 1.0)
    assert p == pytest.approx(0.001)
    assert paired_bootstrap([1.0, 0.0], [0.0, 1.0])[3] == 1.0


def test_spans_are_found_as_evidence_is_compared() -> None:
    body = "A **big** cat, a Big\ncat"

    assert [body[a:b] for a, b in spans_in(body, " big  CAT")] == ["big** cat", "Big\ncat"]
    assert spans_in(body, "|---|") == []
