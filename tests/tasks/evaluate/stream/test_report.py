"""The report of a stream: summaries, its tables as Markdown, and its picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.evaluate.stream.report import (
    ALPHAS,
    NOTE,
    RELEVANCE_WEIGHTS,
    along,
    decision_means,
    draw_stream,
    run_table,
    stream_markdown,
    summarise_runs,
    variants,
)
from tasks.evaluate.stream.walk import MEASURES, Decision, Stream
from tasks.induce.skills.actions import GRANULARITIES
from tasks.retrieve.suggest.methods import METHODS
from tests.support.induce.runs import mooring
from tests.support.models.word_models import WordEncoder


def found(*names: str) -> dict[str, Any]:
    """Return what the command returns: the n-th method is usable at n of 10 steps of each of two domains."""
    runs = {
        name: [
            Decision(f"r{t}", f"t{t % 5}", domain, t, 2 * (t < n), t < n, True, t >= n)
            for domain in ("greenhouse", "harbour") for t in range(10)
        ]
        for n, name in enumerate(names)
    }  # fmt: skip
    granularity = [
        {"granularity": each, "method": "default", **decision_means(runs[names[1]])}
        for each in reversed(GRANULARITIES)
    ]
    return {
        "trajectories": {"read": 7, "successful": 6, "repeated": 0, "unread": {}}, "warm": None, "steps": 20,
        "sgdr": {"granularity": "window", "candidates": None, "judge": "declared"},
        "methods": summarise_runs(runs, names[0]), "granularity": granularity,
    }  # fmt: skip


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of the table under each heading, without its head."""
    parts = [part.splitlines() for part in text.split("\n## ")[1:]]
    return {
        lines[0]: [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:] if line]
        for lines in parts
    }


def test_each_method_has_a_row_with_its_measures_and_what_it_is_compared_with() -> None:
    rows = tables(stream_markdown(found("default", "sgdr")))["Methods"]
    assert [row[:5] for row in rows] == [
        ["default", "0.000", "0.000", "1.000", "1.000"], ["sgdr", "0.100", "0.100", "0.900", "1.000"]
    ]  # fmt: skip
    assert rows[0][6:] == ["", ""]
    assert rows[1][6] == "-0.100"
    low, _, high = rows[1][5].partition(" to ")
    assert 0 <= float(low) <= 0.1 <= float(high)


def test_a_library_that_was_not_empty_is_named_where_its_figures_are() -> None:
    cold = found("default", "sgdr")
    warm = cold | {"warm": {"root": "./shop", "taught": 12, "left_out": 3}}
    said = "Before the first, 12 trajectories of ./shop were learned; 3 of the stream are in it and were not."
    assert said in stream_markdown(warm)
    assert "were learned" not in stream_markdown(cold)


def test_domains_are_columns() -> None:
    text = stream_markdown(found("default", "sgdr"))
    assert "| Method | greenhouse | harbour |" in text
    assert tables(text)["By domain: usable@5"][1] == ["sgdr", "0.100", "0.100"]


def test_the_variants_stand_in_the_layout_of_the_papers_tables() -> None:
    held = tables(stream_markdown(found("default", *variants())))
    assert [row[0] for row in held["Table 2: task and state"]] == ["0", "0.3", "0.5", "0.7", "1"]
    assert [row[2] for row in held["Table 2: task and state"]] == [
        "0.100",
        "0.200",
        "0.300",
        "0.400",
        "0.500",
    ]
    assert [row[0] for row in held["Table 3: MMR"]] == ["no MMR", "0.5", "0.7", "0.9"]
    said = "34.6 / 35.9 / 32.3"
    assert [row[5] for row in held["Table 2: task and state"]] == [
        *["not stated"] * 2,
        said,
        *["not stated"] * 2,
    ]
    assert [row[5] for row in held["Table 3: MMR"]] == ["not stated", "not stated", said, "not stated"]


def test_granularities_come_in_the_order_of_the_paper() -> None:
    held = tables(stream_markdown(found("default", "sgdr")))
    assert [row[:2] for row in held["Table 4: granularity"]] == [[each, "default"] for each in GRANULARITIES]


def test_variants_that_were_not_measured_have_no_row_and_the_note_says_what_the_figures_are() -> None:
    text = stream_markdown(found("default", "state"))
    assert [row[0] for row in tables(text)["Table 2: task and state"]] == ["0"]
    assert tables(text)["Table 3: MMR"] == []
    assert NOTE in text
    assert "7 trajectories, 20 steps" in text


ROWS = [
    {"method": f"method {n}", "along": (curve := [(1, 0.0), (25, 0.1 * n), (50, 0.05 * n)]),
     "by_domain": {"map": {"along": curve}}} for n in range(9)
]  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "head"), [pytest.param("png", b"\x89PNG", marks=pytest.mark.slow), ("svg", b"<?xml")]
)
def test_a_picture_is_drawn_into_a_file_of_its_kind(tmp_path: Path, suffix: str, head: bytes) -> None:
    path = tmp_path / f"stream.{suffix}"
    draw_stream(ROWS, path)
    assert path.read_bytes().startswith(head)


def test_each_method_is_named_in_the_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # words stay words
    draw_stream(ROWS, tmp_path / "stream.svg")
    drawn = (tmp_path / "stream.svg").read_text("utf-8")
    assert [row["method"] for row in ROWS if str(row["method"]) not in drawn] == []
    assert "usable@5" in drawn
    assert "map" in drawn


def decisions(
    usable: Sequence[int], tasks: Sequence[str] = "", domains: Sequence[str] = ""
) -> list[Decision]:
    return [
        Decision(f"r{n}", tasks[n] if tasks else f"t{n}", domains[n] if domains else "d", n,
                 2 * held, bool(held), True, not held)
        for n, held in enumerate(usable)
    ]  # fmt: skip


def test_a_row_has_the_measures_of_all_steps_and_of_each_domain() -> None:
    (row,) = summarise_runs({"it": decisions([1, 0, 1, 1], domains="xxyx")}, "it")
    assert [row[measure] for measure in MEASURES] == [0.75, 0.75, 0.25, 1]
    assert (row["method"], row["steps"], row["against"]) == ("it", 4, None)
    assert list(row["by_domain"]) == ["x", "y"]
    assert {d: (held["steps"], held["usable@5"]) for d, held in row["by_domain"].items()} == {
        "x": (3, pytest.approx(2 / 3)),
        "y": (1, 1),
    }
    assert json.loads(json.dumps(row))["method"] == "it"


def test_intervals_are_over_tasks() -> None:
    usable = [1, 1, 1, 1, 0, 0, 0, 0] * 4
    (alone,) = summarise_runs({"it": decisions(usable)}, "it")
    (together,) = summarise_runs({"it": decisions(usable, tasks="aaaabbbb" * 4)}, "it")
    low, high = alone["ci95"]["usable@5"]
    assert 0 < low < 0.5 < high < 1
    assert together["ci95"]["usable@5"] == [0, 1]  # both tasks, or one of them twice
    assert alone["ci95"]["reachable"] == [1, 1]


def test_a_method_is_compared_over_tasks_with_the_baseline() -> None:
    tasks = "aaabcdefgh"  # one long task counts once
    better, worse = decisions([1] * 10, tasks), decisions([0, 0, 0, 1, 1, 1, 1, 0, 0, 0], tasks)
    rows = {
        row["method"]: row for row in summarise_runs({"base": better, "it": worse, "same": better}, "base")
    }
    assert rows["base"]["against"] is None
    against = rows["it"]["against"]
    assert against["difference"] == 0.5  # of eight tasks
    low, high = against["ci95"]
    assert 0 < low < 0.5 < high < 1
    assert against["adjusted_p"] == pytest.approx(2 * against["p"])  # of two methods
    assert rows["same"]["against"]["difference"] == 0
    assert rows["same"]["against"]["adjusted_p"] == 1


def test_without_a_baseline_nothing_is_compared() -> None:
    assert [row["against"] for row in summarise_runs({"it": decisions([1, 0])}, "other")] == [None]
    assert [row["against"] for row in summarise_runs({"base": [], "it": []}, "base")] == [None, None]


def test_the_curve_along_the_stream_has_the_mean_of_all_steps_so_far() -> None:
    assert along(decisions([1, 0, 0, 1])) == [(1, 1), (2, 0.5), (3, pytest.approx(1 / 3)), (4, 0.5)]
    long = along(decisions([1, 0] * 500))
    assert len(long) == 40
    assert long[0][0] == 25
    assert long[-1] == (1000, 0.5)
    assert along([]) == []


def test_each_row_of_the_tables_is_a_method_and_none_is_measured_under_two_names() -> None:
    assert {*ALPHAS.values(), *RELEVANCE_WEIGHTS.values()} == set(variants())
    assert {"sgdr", "task", "state"} == set(variants()) & set(METHODS)


def test_each_variant_can_be_walked() -> None:
    runs = [mooring("h1", "a"), mooring("h2", "b", "Auk", "C3", 55)]
    found = list(Stream(WordEncoder().encode).walk(runs, variants()))
    for name in variants():
        assert [one.usable for named, one in found if named == name] == [0, 0, 0, 0, 3, 2, 0, 0]


def test_a_run_holds_each_measure_of_each_step() -> None:
    run = run_table({"it": decisions([1, 0, 1, 1])})
    assert run.columns[-2:] == ["measure", "value"]
    assert run.filter(measure="usable@5").sort("t")["value"].to_list() == [1, 0, 1, 1]
    assert run["query"].n_unique() == 4
