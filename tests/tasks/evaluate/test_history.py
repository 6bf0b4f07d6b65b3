from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from storage.parquet import read_frame
from storage.root import Root
from tasks.evaluate.history import HISTORY, SCHEMA, append_history

NIGHT = datetime(2025, 3, 1, 4, 0, tzinfo=UTC)


def row(value: float) -> dict[str, Any]:
    return {
        "probe": "sentence to skill", "leg": "dense", "queries": 9, "measure": "hit@10", "value": value,
        "low": value / 2, "high": 1.0,
    }  # fmt: skip


def test_evaluations_are_added_one_after_another(tmp_path: Path) -> None:
    root = Root(tmp_path)

    assert append_history(root, "v-1", [row(0.5), row(0.25)], now=NIGHT) == HISTORY
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))

    history = read_frame(root, HISTORY, SCHEMA)
    assert history.select("version", "value").rows() == [("v-1", 0.5), ("v-1", 0.25), ("v-2", 0.75)]
    assert history["evaluated_at"].to_list() == [NIGHT, NIGHT, NIGHT + timedelta(days=1)]
    assert history.row(0, named=True) == {**row(0.5), "version": "v-1", "evaluated_at": NIGHT}


def test_an_evaluation_without_figures_changes_nothing(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-1", [row(0.5)], now=NIGHT)

    append_history(root, "v-2", [], now=NIGHT)

    assert read_frame(root, HISTORY, SCHEMA).height == 1


def test_a_figure_without_a_budget_or_of_whole_numbers_is_kept(tmp_path: Path) -> None:
    root = Root(tmp_path)

    append_history(root, "v-1", [{**row(1), "value": 1, "low": 1, "high": 1}], now=NIGHT)

    assert read_frame(root, HISTORY, SCHEMA)["value"].to_list() == [1.0]
