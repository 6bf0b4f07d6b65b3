from __future__ import annotations

import copy
import functools
from itertools import combinations, count
from pathlib import Path

import pytest

from tasks.evaluate.measures.evidence import spans_in
from tasks.evaluate.measures.papers import papers
from tasks.evaluate.paging.bench import PagingBench, Remembering, prepare_all
from tasks.evaluate.paging.picture import draw_paging, paging_figure
from tasks.evaluate.paging.report import (
    PagingReport,
    paging_markdown,
    report_paging,
    report_settings,
)
from tasks.retrieve.baselines.skillpager import OpenSettings
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_bench import DOCUMENTS, QUERIES, AllConcepts


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


@pytest.mark.slow
def test_a_picture_is_drawn_with_curves_of_scorers_that_never_saw_the_document(tmp_path: Path) -> None:
    report = measured()
    report.rows = [{**row, "held_out": 2 * (row["method"] == "facets")} for row in report.rows]
    draw_paging(report, tmp_path / "paging.svg")
    text = (tmp_path / "paging.svg").read_text("utf-8")
    assert "facets (scorers fitted on other documents)" in text
    assert "paper: SkillPager" in text


def test_no_name_in_the_picture_lies_on_another_or_outside() -> None:
    figure = paging_figure(measured())
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
