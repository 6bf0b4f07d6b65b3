from __future__ import annotations

from pathlib import Path

import polars as pl

from storage.root import Root
from storage.schemas import DROPPED, Dropped, to_frame
from storage.state import append_dropped, read_runs, read_sources, write_run, write_source


def dropped(*doc_ids: str) -> pl.DataFrame:
    return to_frame([Dropped(d, "dir:x", "empty", "zero bytes") for d in doc_ids], DROPPED, run_id="1")


def test_what_a_run_drops_adds_up_in_its_file_each_row_once(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_dropped(root, "1", dropped("rye", "spelt"))
    append_dropped(root, "1", dropped("spelt", "oat"))
    held = pl.read_parquet(tmp_path / "dropped/1.parquet")
    assert held["doc_id"].to_list() == ["rye", "spelt", "oat"]


def test_a_run_that_drops_nothing_has_no_file(tmp_path: Path) -> None:
    append_dropped(Root(tmp_path), "1", dropped())
    assert not (tmp_path / "dropped").exists()


def test_sources_are_remembered_each_for_itself(tmp_path: Path) -> None:
    root = Root(tmp_path)
    write_source(root, "dir:a", {"state": "failed"})
    write_source(root, "dir:b", {"state": "complete"})
    write_source(root, "dir:a", {"state": "complete"})
    assert read_sources(root) == {"dir:a": {"state": "complete"}, "dir:b": {"state": "complete"}}
    write_source(root, "dir:a", None)
    assert read_sources(root) == {"dir:b": {"state": "complete"}}


RUN = {"state": "complete", "specs": [], "sources": []}


def test_the_last_runs_come_newest_first(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for number in range(5):
        write_run(root, {**RUN, "run_id": f"2026010{number}"})
    assert [r["run_id"] for r in read_runs(root, last=2)] == ["20260104", "20260103"]


def test_a_run_that_was_given_a_name_stands_where_it_began(tmp_path: Path) -> None:
    root = Root(tmp_path)
    write_run(root, {**RUN, "run_id": "manual", "started_at": "2026-01-02T12:00:00+00:00"})
    for day in range(1, 5):
        name = f"2026010{day}T021500-a0b1c{day}"
        write_run(root, {**RUN, "run_id": name, "started_at": f"2026-01-0{day}T02:15:00+00:00"})

    assert [r["run_id"] for r in read_runs(root, last=3)] == [
        "20260104T021500-a0b1c4", "20260103T021500-a0b1c3", "manual",
    ]  # fmt: skip
    assert read_runs(root, last=1)[0]["run_id"] == "20260104T021500-a0b1c4"
