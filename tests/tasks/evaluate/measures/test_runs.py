from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.evaluate.measures.runs import grouped, latency, long_table, paired_tests, summarise, write_run
from tasks.evaluate.measures.tables import Table, cell, columns, markdown, means, with_intervals


def test_a_run_is_a_row_for_each_query_and_measure_with_keys_before_the_value(tmp_path: Path) -> None:
    rows = pl.DataFrame({
        "method": ["a", "a"], "query_id": ["q1", "q2"], "budget": [None, 0.5], "hit": [1, 0],
        "chunks": [None, 3],
    })  # fmt: skip
    asked = pl.DataFrame({"pool": ["own"], "method": ["a"], "query_id": ["n1"], "score": [0.25]})
    write_run(
        tmp_path / "run.parquet",
        [long_table("mill", rows, ["hit", "chunks"]), long_table("mill", asked, ["score"])],
    )
    written = pl.read_parquet(tmp_path / "run.parquet")
    assert written.columns == ["bench", "pool", "method", "query", "budget", "measure", "value"]
    assert written.rows() == [
        ("mill", "all", "a", "q1", None, "hit", 1.0),
        ("mill", "all", "a", "q2", 0.5, "hit", 0.0),
        ("mill", "all", "a", "q2", 0.5, "chunks", 3.0),
        ("mill", "own", "a", "n1", None, "score", 0.25),
    ]


def test_a_summary_has_means_and_intervals_over_queries_or_over_clusters() -> None:
    values = {"hit": [1.0, 1.0, 0.0, 0.0] * 5, "share": [0.5] * 20}
    alone, together = summarise(values), summarise(values, list("aabb") * 5)
    assert (alone["hit"], alone["share"], alone["ci95"]["share"]) == (0.5, 0.5, [0.5, 0.5])
    low, high = alone["ci95"]["hit"]
    assert 0 < low < 0.5 < high < 1
    assert together["ci95"]["hit"] == [0.0, 1.0]  # both clusters, or one of them twice


def test_groups_come_in_their_order_and_nameless_items_belong_to_none() -> None:
    assert grouped(["bee", "ant", "", "bat"], lambda word: word[:1]) == {"b": ["bee", "bat"], "a": ["ant"]}
    assert latency([1.0, 2.0, 3.0])["median_ms"] == 2.0


def test_tests_made_together_are_adjusted_together() -> None:
    better, worse = [1.0] * 12, [0.0] * 6 + [1.0] * 6
    [alone] = paired_tests([(better, worse)])
    first, second = paired_tests([(better, worse), (worse, worse)])
    assert (alone.difference, alone.p_adjusted) == (0.5, alone.p)
    assert alone.low < 0.5 < alone.high
    assert first.p_adjusted == pytest.approx(2 * first.p)
    assert (second.difference, second.p, second.p_adjusted) == (0.0, 1.0, 1.0)
    assert paired_tests([]) == []


ROW: dict[str, Any] = {
    "method": "mmr", "hit@1": 0.5, "none": None, "budget": 0.0, "marked": 2, "loss": -0.25, "whole": 1.0,
    "ci95": {"hit@1": [0.25, 0.75]}, "paper": {"nodes": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{method}", "mmr"),
        ("{hit@1:.3f}", "0.500"),
        ("{hit@1:.2p}", "50.00"),
        ("{hit@1:.1%}", "50.0%"),
        ("{hit@1:.3z}", ".500"),
        ("{whole:.3z}", "1"),
        ("{loss:+.2z}", "-.25"),
        ("{hit@1:+.2z}", "+.50"),
        ("{paper[nodes]:.1f}", "4.0"),
        ("[{ci95[hit@1][0]:.2f}, {ci95[hit@1][1]:.2f}]", "[0.25, 0.75]"),
        ("{method}{marked:? †}", "mmr †"),
        ("{method}{budget:? †}", "mmr"),
        ("{none:g|own limit}", "own limit"),
        ("{method}{none:g|}", "mmr"),
        ("{none:.3f}", ""),
        ("{method} {absent}", ""),
        ("{none[deep]:.2f}", ""),
    ],
)
def test_a_cell_is_a_format_of_a_rows_fields_and_empty_where_one_is_missing(form: str, said: str) -> None:
    assert cell(form, ROW) == said


def test_blocks_are_paragraphs_headings_and_tables_in_markdown() -> None:
    table = Table(
        "Methods", columns({"Method": "{method}"}, means(["hit@1"]), with_intervals({"hit@1": "Hit"})), [ROW]
    )
    assert markdown(["# Run", "Said first.", table, Table("", columns("method"), [])]) == (
        "# Run\n\nSaid first.\n\n## Methods\n\n"
        "| Method | hit@1 | Hit |\n| --- | --- | --- |\n| mmr | 0.500 | 0.500 [0.25, 0.75] |\n\n"
        "| method |\n| --- |\n"
    )
