from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from itertools import combinations, count

import pytest

from storage.errors import WrongInput
from tasks.evaluate.measures.evidence import EvidenceQuery, spans_in
from tasks.evaluate.measures.tables import papers
from tasks.evaluate.paging.bench import PagingBench, Remembering, body_of, prepare_all
from tasks.evaluate.paging.outcomes import Outcome, summarise_outcomes
from tasks.evaluate.paging.picture import paging_figure
from tasks.evaluate.paging.probes import draw_paging_probes
from tasks.evaluate.paging.report import PagingReport, paging_markdown, report_paging, report_settings
from tasks.retrieve.baselines.skillpager import OpenSettings
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_bench import DOCUMENTS, QUERIES, AllConcepts, paged, workshop


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
    # A document without sections has no probes.
    flat = "\n\n".join(f"Sentence {n} of a long unbroken tale about sheep." for n in range(200))
    assert draw_paging_probes({"a/b/c": flat}, **SMALL).queries == []


def test_the_whole_document_and_all_its_nodes_hold_every_probe() -> None:
    probes = draw_paging_probes(TEXTS, **SMALL)
    for row in paged(probes.documents, probes.queries, ["full", "nodes"]):
        assert (row["sufficient"], row["queries"]) == (1.0, 8)
        assert list(row["by_breadth"]) == ["probe"]


@functools.cache
def _measured() -> tuple[PagingReport, int]:
    encoder, tokenizer = Remembering(WordEncoder()), WordTokenizer()
    ready = prepare_all(DOCUMENTS, QUERIES, encoder=encoder, tokenizer=tokenizer, classifier=AllConcepts())
    steps = count()
    bench = PagingBench(ready, QUERIES, encoder, tokenizer)
    return report_paging(bench, lambda: next(steps) and None), next(steps)


def measured() -> PagingReport:
    """Return a report that a test may change, measured once."""
    return copy.copy(_measured()[0])


def test_a_report_has_every_table_of_the_paper_and_a_contest_a_baseline() -> None:
    report, steps = _measured()
    text = paging_markdown(report)
    assert all(f"## {title}" in text for title in papers("paging"))
    assert steps == len(QUERIES) * sum(len(part) for part in report_settings())
    assert {"skillpager", "greedy-graph", "chunks"} <= {c["method"] for c in report.contests}
    assert all(c["default_tokens"] <= c["method_tokens"] for c in report.contests)
    assert all(c["low"] <= c["difference"] <= c["high"] for c in report.contests)
    assert all(c["low_clustered"] <= c["difference"] <= c["high_clustered"] for c in report.contests)
    assert all(c["p"] <= c["p_adjusted"] for c in report.contests)
    assert not {"context", "verdict"} & set(report.run.columns)
    assert report.run.filter(measure="sufficient").height == len(QUERIES) * len(report.rows)
    full = report.run.filter(method="full", measure="sufficient")
    assert full["value"].mean() == report.row("full")["sufficient"]


def test_who_judged_what_and_what_was_fitted_is_said_in_the_report() -> None:
    report = measured()
    text = paging_markdown(report)
    assert "Judged by evidence" in text
    assert "†" not in text
    report.fitted, report.probes = 1, [report.row("facets", 0.5)]
    report.rows = [{**row, "held_out": 2 * (row["method"] == "facets")} for row in report.rows]
    report.contests = [contest | {"held_out": 2} for contest in report.contests]
    text = paging_markdown(report)
    assert "Held out: the scorer of facets was fitted on 1 of these documents" in text
    assert "| Skillery, no budget † |" in text
    assert "| facets † | 0.5 |" in text
    contests = text[text.index("## facets against") : text.index("## By breadth")]
    assert contests.count("†") == len(report.contests)
    # The probes are of other documents.
    probes = text[text.index("## Long documents") :]
    assert "| facets | 0.5 |" in probes


def test_where_a_language_model_speaks_the_papers_tables_are_its_own_and_the_rest_is_by_evidence() -> None:
    report = measured()
    said = {"queries": 2, "unjudged": 0, "sufficient": 1.0, "ci95": [1.0, 1.0], "patterns": {"3-0": 2}}
    report.judge = {"spoke": "llm", "model": "small-model", "prompt": "judge-1", "votes": 3}
    report.judged = [
        {**row, "sufficient": 1.0, "llm": said} for row in report.rows if (row["method"], row["budget"])
        in {("full", None), ("facets", None)}
    ]  # fmt: skip
    text = paging_markdown(report)
    assert "Tables 1 to 7: judged by a language model, small-model by judge-1, 3 votes" in text
    main = text[text.index("## Table 4") : text.index("## Table 5")]
    assert "| Full document | 100.00 |" in main
    assert "| Greedy graph |" not in main  # it judged none of it
    rows = report.all_rows()
    assert {(r["method"], r["judge"]) for r in rows if r["budget"] is None} == {
        ("full", "small-model"),
        ("facets", "small-model"),
    }
    assert {r["judge"] for r in rows if r["budget"] is not None} == {"evidence"}


def test_no_name_in_the_picture_lies_on_another_or_outside() -> None:
    report = measured()
    report.rows = [{**row, "held_out": 2 * (row["method"] == "facets")} for row in report.rows]
    figure = paging_figure(report)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "facets (scorers fitted on other documents)" in legend
    axes, *tables = figure.axes
    assert [part.get_title().partition(":")[0] for part in tables] == ["Table 5", "Table 6", "Table 7"]
    assert all([line.get_marker() for line in part.lines] == ["x", "o"] for part in tables)
    names = [text for text in axes.texts if text.get_text().startswith("paper: ")]
    boxes = [name.get_window_extent() for name in names]
    frame = axes.get_window_extent()
    assert len(names) == 5
    assert not [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b)]
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_what_the_paper_leaves_open_stands_in_the_report() -> None:
    report = measured()
    report.skillpager = OpenSettings(entry="first", least_gain=0.1, stop_below=-1, chunk_overlap=32)
    text = paging_markdown(report)
    said = text[text.index("## What the paper leaves open") :]
    for line in ("entry | first", "least_gain | 0.1", "stop_below | -1.0", "chunk_overlap | 32"):
        assert f"| {line} |" in said


def test_units_of_a_method_that_picks_chunks_are_chunks() -> None:
    report = measured()
    row = report.row("chunks")
    assert (row["units"], row["nodes"]) == (1.0, 4.0)  # the whole document is one chunk
    assert report.row("nodes")["units"] == 4.0
    assert "| Naive chunk + MMR | 50.00 |" in (text := paging_markdown(report))
    assert "Units are nodes; of the method that picks chunks, chunks." in text


def test_spans_are_found_as_evidence_is_compared() -> None:
    body = "A **big** cat, a Big\ncat"
    assert [body[a:b] for a, b in spans_in(body, " big  CAT")] == ["big** cat", "Big\ncat"]
    assert spans_in(body, "|---|") == []
