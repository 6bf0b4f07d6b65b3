from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import SchemaMismatch
from storage.parquet import write_frame
from storage.root import Root
from tasks.evaluate.health.history import HISTORY, append_history, read_history

NIGHT = datetime(2025, 3, 1, 4, 0, tzinfo=UTC)


def row(value: float) -> dict[str, Any]:
    return {
        "probe": "sentence to skill", "leg": "dense", "queries": 9, "measure": "hit@10", "value": value,
        "low": value / 2, "high": 1.0,
    }  # fmt: skip


def test_evaluations_are_added_one_after_another(tmp_path: Path) -> None:
    root = Root(tmp_path)
    file = append_history(root, "v-1", [row(0.5), row(0.25)], now=NIGHT)
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))
    history = read_history(root)
    assert history.select("version", "value").rows() == [("v-1", 0.5), ("v-1", 0.25), ("v-2", 0.75)]
    assert history["evaluated_at"].to_list() == [NIGHT, NIGHT, NIGHT + timedelta(days=1)]
    assert history.row(0, named=True) == {**row(0.5), "version": "v-1", "evaluated_at": NIGHT}
    assert pl.read_parquet(tmp_path / file)["value"].to_list() == [0.5, 0.25]


def test_of_two_evaluations_at_once_neither_loses_its_rows(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-2", [row(0.5)], now=NIGHT + timedelta(microseconds=1))
    append_history(root, "v-2", [row(0.25)], now=NIGHT)
    assert read_history(root)["value"].to_list() == [0.25, 0.5]


def test_an_evaluation_without_figures_adds_no_rows(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-1", [row(0.5)], now=NIGHT)
    append_history(root, "v-2", [], now=NIGHT + timedelta(days=1))
    assert read_history(root).height == 1


def test_a_figure_of_whole_numbers_is_kept(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-1", [{**row(1), "value": 1, "low": 1, "high": 1}], now=NIGHT)
    assert read_history(root)["value"].to_list() == [1.0]


def test_a_damaged_file_takes_one_evaluation_with_it_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Root(tmp_path)
    broken = append_history(root, "v-1", [row(0.5)], now=NIGHT)
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))
    (tmp_path / broken).write_bytes(b"PAR1 no more")
    with caplog.at_level(logging.WARNING):
        assert read_history(root)["version"].to_list() == ["v-2"]
    assert broken in caplog.text


def test_a_file_of_a_newer_version_is_not_passed_over(tmp_path: Path) -> None:
    root = Root(tmp_path)
    newer = pl.DataFrame({"verdict": ["good"]})
    write_frame(root, f"{HISTORY}/20260101-v-9.parquet", newer, newer.schema)
    with pytest.raises(SchemaMismatch):
        read_history(root)


def test_a_history_of_one_file_is_gone_on_with(tmp_path: Path) -> None:
    root = Root(tmp_path)
    file = append_history(root, "v-1", [row(0.5)], now=NIGHT)
    (tmp_path / file).rename(tmp_path / "reports/evaluation.parquet")
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))
    assert read_history(root)["version"].to_list() == ["v-1", "v-2"]
