"""Summaries of a walked stream."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tasks.evaluate.stream.decisions import MEASURES, Decision
from tasks.evaluate.stream.summary import along, summarise


def decisions(
    usable: Sequence[int], tasks: Sequence[str] = "", domains: Sequence[str] = ""
) -> list[Decision]:
    return [
        Decision(f"r{n}", tasks[n] if tasks else f"t{n}", domains[n] if domains else "d", n,
                 2 * held, bool(held), True, not held)
        for n, held in enumerate(usable)
    ]  # fmt: skip


def test_a_row_has_the_measures_of_all_steps_and_of_each_domain() -> None:
    (row,) = summarise({"it": decisions([1, 0, 1, 1], domains="xxyx")}, "it")

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
    (alone,) = summarise({"it": decisions(usable)}, "it")
    (together,) = summarise({"it": decisions(usable, tasks="aaaabbbb" * 4)}, "it")

    low, high = alone["ci95"]["usable@5"]
    assert 0 < low < 0.5 < high < 1
    assert together["ci95"]["usable@5"] == [0, 1]  # both tasks, or one of them twice
    assert alone["ci95"]["reachable"] == [1, 1]


def test_a_method_is_compared_over_tasks_with_the_baseline() -> None:
    tasks = "aaabcdefgh"  # one long task counts once
    better, worse = decisions([1] * 10, tasks), decisions([0, 0, 0, 1, 1, 1, 1, 0, 0, 0], tasks)

    rows = {row["method"]: row for row in summarise({"base": better, "it": worse, "same": better}, "base")}

    assert rows["base"]["against"] is None
    against = rows["it"]["against"]
    assert against["difference"] == 0.5  # of eight tasks
    low, high = against["ci95"]
    assert 0 < low < 0.5 < high < 1
    assert against["adjusted_p"] == pytest.approx(2 * against["p"])  # of two methods
    assert rows["same"]["against"]["difference"] == 0
    assert rows["same"]["against"]["adjusted_p"] == 1


def test_without_a_baseline_nothing_is_compared() -> None:
    assert [row["against"] for row in summarise({"it": decisions([1, 0])}, "other")] == [None]
    assert [row["against"] for row in summarise({"base": [], "it": []}, "base")] == [None, None]


def test_the_curve_along_the_stream_has_the_mean_of_all_steps_so_far() -> None:
    assert along(decisions([1, 0, 0, 1])) == [(1, 1), (2, 0.5), (3, pytest.approx(1 / 3)), (4, 0.5)]
    long = along(decisions([1, 0] * 500))
    assert len(long) == 40
    assert long[0][0] == 25
    assert long[-1] == (1000, 0.5)
    assert along([]) == []
