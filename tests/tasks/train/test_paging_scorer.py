from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.evaluate.measures.evidence import EvidenceQuery, read_documents, read_queries
from tasks.evaluate.paging.bench import PagingBench, Remembering, body_of, measure, prepare_all
from tasks.evaluate.paging.held_out import SEED, digest, fitted, held_out_scorer
from tasks.evaluate.paging.outcomes import summarise_outcomes
from tasks.evaluate.paging.report import paging_markdown, report_paging
from tasks.models.encoder import OnnxEncoder
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.paging.scorer import FILE
from tasks.train.paging_scorer import FOLDS, example, fit, held_out, stored, write_fitted
from tasks.train.splits import folds_of
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_bench import AllConcepts, workshop
from tests.support.paths import PROJECT, SHARED

BENCH = SHARED / "bench/paging"
SAMPLE = PROJECT / "tasks/crawl/marketplace"


def bench(documents: int) -> PagingBench:
    texts = {f"d{n}": workshop(f"w{n}", 3) for n in range(documents)}
    queries = [
        EvidenceQuery(f"q{n}", f"d{n}", "grease the anvil handle", ((f"every 3 weeks with w{n}anvil1 wax",),))
        for n in range(documents)
    ]
    encoder, tokenizer = Remembering(WordEncoder()), WordTokenizer()
    ready = prepare_all(texts, queries, encoder=encoder, tokenizer=tokenizer, classifier=AllConcepts())
    return PagingBench(ready, queries, encoder, tokenizer)


def shared_bench(encoder: OnnxEncoder, documents: int, each: int = 1000) -> PagingBench:
    """Return the shared bench's first documents, each with so many of its requests."""
    if not BENCH.exists():
        pytest.skip("the shared paging bench is not on this machine")
    texts, queries = read_documents(BENCH / "documents.jsonl"), read_queries(BENCH / "queries.jsonl")
    some = sorted({q.doc_id for q in queries})[:documents]
    asked = [query for doc_id in some for query in [q for q in queries if q.doc_id == doc_id][:each]]
    ready = prepare_all(texts, asked, encoder=encoder, tokenizer=encoder, classifier=LocalClassifier())
    return PagingBench(ready, asked, Remembering(encoder), encoder)


def test_what_a_scorer_was_fitted_on_is_written_and_read_with_a_scorer_for_each_fold(tmp_path: Path) -> None:
    made = bench(18)
    examples = [example(q, made.documents[q.doc_id], made.encoder, made.tokenizer) for q in made.queries]
    ids = list(made.documents)
    drawn = dict(zip(ids, folds_of(ids, FOLDS, SEED).tolist(), strict=True))
    scorers = held_out(examples, SEED)
    bodies = {made.documents[doc_id].body: fold for doc_id, fold in drawn.items()}
    write_fitted(tmp_path / "fitted.json", bodies, [stored(scorers[k]) for k in sorted(scorers)], "packaged")
    found = fitted(tmp_path / "fitted.json")
    assert found.folds == {digest(body): fold for body, fold in bodies.items()}
    assert found.packaged == digest("packaged")
    assert all(np.allclose(found.scorers[k].weight, scorers[k].weight, atol=1e-6) for k in scorers)
    # A bench pages each document by the scorer of its fold, and says so.
    made.scorers = {doc_id: found.scorers[fold] for doc_id, fold in drawn.items()}
    measured = measure(made, [("facets", 0.3), ("mmr", 0.3)])
    ours, theirs = (summarise_outcomes(outcomes) for outcomes in measured.values())
    assert (ours["held_out"], theirs["held_out"]) == (18, 0)
    # Where the same sentence answers in every document, the others teach it.
    assert (ours["sufficient"], ours["token_reduction"] >= 0.7) == (1.0, True)


def test_the_held_out_scorers_go_with_the_packaged_one() -> None:
    assert fitted().packaged == digest(FILE.read_text("utf-8"))
    assert set(fitted().folds.values()) == set(range(len(fitted().scorers)))


def test_documents_that_the_packaged_scorer_never_saw_are_paged_by_it() -> None:
    made = bench(2)
    assert made.scorers == {}
    [outcomes] = measure(made, [("facets", None)]).values()
    assert summarise_outcomes(outcomes)["held_out"] == 0


def test_the_scorer_never_saw_the_sample_that_a_nights_evaluation_measures() -> None:
    bodies = [body_of(path.read_text("utf-8", "replace")) for path in SAMPLE.rglob("SKILL.md")]
    assert bodies
    assert [body for body in bodies if held_out_scorer(body)] == []


def test_of_a_few_documents_that_it_was_fitted_on_every_figure_is_held_out(minilm: OnnxEncoder) -> None:
    made = shared_bench(minilm, 2, 1)
    assert len(made.scorers) == 2
    report = report_paging(made, lambda: None)
    ours = [row for row in report.rows if row["method"] == "facets"]
    assert {row["held_out"] for row in ours} == {len(made.queries)}
    assert {row["held_out"] for row in report.rows if row["method"] != "facets"} == {0}
    assert {contest["held_out"] for contest in report.contests} == {len(made.queries)}
    text = paging_markdown(report)
    assert "Held out: the scorer of facets was fitted on 2 of these documents" in text
    assert "| facets |" not in text.partition("## Latency")[0]


@pytest.mark.slow
def test_each_shipped_scorer_is_what_the_fit_gives_without_its_fold(minilm: OnnxEncoder) -> None:
    made = shared_bench(minilm, 36)
    examples = [example(q, made.documents[q.doc_id], minilm, minilm) for q in made.queries]
    drawn = fitted().folds
    assert len(made.scorers) == 36
    for fold, shipped in enumerate(fitted().scorers):
        others = [e for e in examples if drawn[digest(made.documents[e.query.doc_id].body)] != fold]
        again = fit(others)
        assert len(others) < len(examples)
        assert np.allclose(again.weight, shipped.weight, atol=1e-4)
        assert np.allclose(again.mean, shipped.mean, atol=1e-4)
