from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from storage.errors import WrongInput
from tasks.evaluate.measures.evidence import EvidenceQuery, read_documents, read_queries
from tasks.evaluate.paging.bench import Remembering, body_of
from tasks.evaluate.paging.outcomes import Outcome, summarise_outcomes
from tasks.evaluate.paging.probes import draw_paging_probes
from tests.support.models.word_models import WordEncoder
from tests.support.paging.paging_bench import DOCUMENTS, QUERIES, paged, workshop
from tests.support.paths import SHARED

BENCH = SHARED / "bench/paging"


def rows(
    methods: Sequence[str],
    budgets: Sequence[float | None] = (None,),
    queries: Sequence[EvidenceQuery] = QUERIES,
    **others: object,
) -> list[dict[str, object]]:
    return paged(DOCUMENTS, queries, methods, budgets, **others)  # type: ignore[arg-type]


def test_the_whole_document_and_all_its_nodes_cover_what_the_text_holds() -> None:
    for row in rows(["full", "nodes"]):
        assert (row["sufficient"], row["coverage"], row["token_reduction"]) == (0.5, 0.75, 0.0)
        assert (row["queries"], row["nodes"]) == (2, 4.0)


def test_a_budget_buys_token_reduction_summed_over_queries() -> None:
    [row] = rows(["mmr"], [8])
    # Each query gets its one sentence without headings: 7 and 8 of the 33 tokens without front matter.
    assert row["token_reduction"] == pytest.approx(1 - 15 / 66)
    assert (row["sufficient"], row["coverage"], row["nodes"]) == (0.5, 0.75, 1.0)


def test_documents_are_encoded_once_and_only_those_asked_for() -> None:
    encoder = WordEncoder()
    rows(["mmr", "nodes"], [None, 0.5], encoder=encoder)
    assert encoder.encoded.count("Replace bent pegs.") == 1
    assert "Never read." not in encoder.encoded


def test_times_are_of_a_query_in_milliseconds() -> None:
    ticks = count(0.0, 0.25)
    [row] = rows(["full"], clock=lambda: next(ticks))
    assert (row["median_ms"], row["p95_ms"]) == (250.0, 250.0)


def test_every_measure_has_an_interval_around_it() -> None:
    outcomes = [Outcome(covered, 10 * n, 100, n, 1.0) for n, covered in enumerate([1.0, 0.5, 1.0, 0.0], 1)]
    row = summarise_outcomes(outcomes)
    assert row["sufficient"] == 0.5
    assert row["coverage"] == 0.625
    assert row["token_reduction"] == pytest.approx(0.75)
    assert list(row["ci95"]) == ["sufficient", "coverage", "units", "token_reduction"]
    for measure, (low, high) in row["ci95"].items():
        assert low < row[measure] < high


def test_groups_are_by_breadth_and_by_the_size_of_the_document_in_their_natural_order() -> None:
    sizes = {120: "broad", 20: "narrow", 60: "medium", 50: "narrow", 400: "odd", 200: None}
    outcomes = [
        Outcome(float(size > 50), 10, 100, 1, 1.0, breadth=breadth, size=size)
        for size, breadth in sizes.items()
    ]
    row = summarise_outcomes(outcomes)
    assert list(row["by_breadth"]) == ["narrow", "medium", "broad", "odd"]
    assert list(row["by_size"]) == [
        "up to 50 nodes",
        "51 to 100 nodes",
        "101 to 149 nodes",
        "150 to 299 nodes",
        "300 nodes or more",
    ]
    assert row["by_size"]["up to 50 nodes"]["queries"] == 2
    assert row["by_size"]["up to 50 nodes"]["ci95"]["sufficient"] == [0.0, 0.0]
    assert row["by_breadth"]["broad"]["sufficient"] == 1.0


def test_a_judges_verdict_stands_over_the_evidence() -> None:
    covered, missed = Outcome(1.0, 1, 9, 1, 1.0), Outcome(0.5, 1, 9, 1, 1.0)
    assert (covered.sufficient, missed.sufficient) == (True, False)
    assert (replace(covered, verdict=False).sufficient, replace(missed, verdict=True).sufficient) == (
        False,
        True,
    )


def test_what_is_encoded_once_is_remembered_with_the_time_it_took() -> None:
    inner, ticks = WordEncoder(), count(0.0, 2.0)
    encoder = Remembering(inner, clock=lambda: next(ticks))
    first = [encoder.encode(["a b"]), encoder.encode_parts("a b", [(0, 1), (2, 3)])]
    again = [encoder.encode(["a b"]), encoder.encode_parts("a b", [(0, 1), (2, 3)])]
    assert inner.encoded == ["a b", "a b", "a", "b"]
    assert all((x == y).all() for x, y in zip(first, again, strict=True))
    assert encoder.spared == 4.0


def test_no_queries_and_unknown_methods_are_refused_before_any_work() -> None:
    encoder = WordEncoder()
    with pytest.raises(WrongInput, match="no queries"):
        rows(["full"], queries=[], encoder=encoder)
    with pytest.raises(WrongInput, match="'best'"):
        rows(["full", "best"], encoder=encoder)
    assert encoder.encoded == []


@pytest.mark.slow
def test_segmentation_loses_no_evidence_of_real_skills() -> None:
    if not BENCH.exists():
        pytest.skip("the shared paging bench is not on this machine")
    documents, queries = read_documents(BENCH / "documents.jsonl"), read_queries(BENCH / "queries.jsonl")
    measured = paged(documents, queries, ["full", "nodes"])
    assert [(row["queries"], row["sufficient"]) for row in measured] == [(144, 1.0), (144, 1.0)]


TEXTS = {f"owner{n}/repo/{n}": workshop(f"w{n}", 9) for n in range(6)} | {"owner9/r/short": workshop("s", 2)}
SMALL = {"documents": 4, "least_nodes": 60, "each": 2}


def test_probes_are_of_long_documents_and_hold_what_they_ask_for() -> None:
    probes = draw_paging_probes(TEXTS, **SMALL)
    assert len(probes.documents) == 4
    assert "owner9/r/short" not in probes.documents
    assert len(probes.queries) == 8
    assert len({query.query_id for query in probes.queries}) == 8
    for query in probes.queries:
        body = body_of(TEXTS[query.doc_id])
        assert (query.breadth, len(query.evidence)) == ("probe", 3)
        assert all(span in body for (span,) in query.evidence)
        heading, _, words = query.query.partition(": ")
        assert f"## {heading}\n" in body
        assert all(word in query.evidence[0][0].lower() for word in words.split())


def test_the_same_corpus_and_seed_give_the_same_probes_in_whatever_order() -> None:
    turned = dict(reversed(TEXTS.items()))
    assert draw_paging_probes(turned, **SMALL) == draw_paging_probes(TEXTS, **SMALL)
    assert draw_paging_probes(TEXTS, **SMALL, seed=7) != draw_paging_probes(TEXTS, **SMALL)


def test_a_document_without_sections_has_no_probes() -> None:
    flat = "\n\n".join(f"Sentence {n} of a long unbroken tale about sheep." for n in range(200))
    assert draw_paging_probes({"a/b/c": flat}, **SMALL).queries == []


def test_the_whole_document_and_all_its_nodes_hold_every_probe() -> None:
    probes = draw_paging_probes(TEXTS, **SMALL)
    for row in paged(probes.documents, probes.queries, ["full", "nodes"]):
        assert (row["sufficient"], row["queries"]) == (1.0, 8)
        assert list(row["by_breadth"]) == ["probe"]
