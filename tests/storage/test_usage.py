from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.usage import DROPPED, USAGE, UsageLog, read_usage, tidy_usage

NOW = datetime.now(UTC)


def log_of(root: Root, mode: str = "texts") -> UsageLog:
    return UsageLog(root, mode, lambda text: text.replace("hunter2", "*"))  # type: ignore[arg-type]


def test_what_is_noted_is_read_again_by_event_and_document(tmp_path: Path) -> None:
    root = Root(tmp_path)
    log = log_of(root)
    log.note("http", "search", ["a", "b"], query="the key hunter2", fits=True, milliseconds=3.5, version="v")
    log.note("hook", "search", [], query="nothing", fits=False)
    log.flush()
    rows = read_usage(root, NOW)
    assert rows.filter(pl.col("rank") > 0)["doc_id"].to_list() == ["a", "b"]
    assert rows.filter(pl.col("rank") == 0)["query"].to_list() == ["the key *", "nothing"]
    assert os.stat(tmp_path / "usage").st_mode & 0o077 == 0


@pytest.mark.parametrize(("mode", "queries"), [("off", None), ("counts", [None]), ("texts", ["q"])])
def test_what_is_kept_is_what_was_consented_to(
    tmp_path: Path, mode: str, queries: list[str | None] | None
) -> None:
    log = log_of(Root(tmp_path), mode)
    log.start()
    log.note("http", "search", [], query="q", fits=False)
    log.close()
    assert (tmp_path / "usage").exists() == (queries is not None)
    if queries is not None:
        assert read_usage(Root(tmp_path), NOW)["query"].to_list() == queries


def test_more_than_can_wait_is_counted_and_what_cannot_be_written_too(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    log = log_of(root)
    for _ in range(10_007):
        log.note("http", "page", [])
    (tmp_path / "root").write_text("a file stands in the way")
    log.flush()  # to no file; every event is counted
    (tmp_path / "root").unlink()
    log.note("http", "page", [])
    log.flush()
    rows = read_usage(root, NOW)
    assert rows.filter(pl.col("action") == DROPPED)["rank"].to_list() == [10_007]
    assert rows.filter(pl.col("action") == "page").height == 1


def test_days_that_are_over_are_merged_and_old_ones_removed(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for days in (0, 1, 90, 91):
        at = NOW - timedelta(days=days)
        for part in range(2):
            row = (f"{days}-{part}", at, "http", "page", 0, None, None, 1.0, "v", None)
            place = f"usage/day={at.date()}/part-{part}.parquet"
            write_frame(root, place, pl.DataFrame([row], USAGE, orient="row"), USAGE)
    before = read_usage(root, NOW - timedelta(days=90))
    tidy_usage(root, NOW)
    counts = [len(list(day.iterdir())) for day in sorted((tmp_path / "usage").iterdir())]
    assert counts == [1, 1, 2]
    assert read_usage(root, NOW - timedelta(days=400)).equals(before)


def test_half_a_character_is_written_and_what_cannot_be_merged_drops_nothing(tmp_path: Path) -> None:
    (tmp_path / "usage/day=2020-01-01").mkdir(parents=True)
    (tmp_path / "usage/day=2020-01-01/part-a.parquet").write_bytes(b"no table")
    log = log_of(Root(tmp_path))
    log.note("http", "search", ["a"], query="half \ud83d")
    log.flush()
    assert (tmp_path / "usage/day=2020-01-01").exists()  # only a server tidies
    rows = read_usage(Root(tmp_path), NOW)
    assert rows["query"].to_list() == ["half ?", None]
    log.note("http", "search", ["a"], fits="odd")  # type: ignore[arg-type]
    log.flush()
    log.note("http", "page", [])
    log.flush()
    assert read_usage(Root(tmp_path), NOW).filter(pl.col("action") == DROPPED)["rank"].to_list() == [1]


_NOTING = """
import sys
from storage.root import Root
from storage import usage
usage._MANY = 5
log = usage.UsageLog(Root(sys.argv[1]), "texts", lambda text: text)
log.start()
print("ready", flush=True)
while True:
    log.note("http", "search", ["a"], query="q" * 200, fits=True)
"""


def test_a_kill_tears_no_row(tmp_path: Path) -> None:
    for kill in range(2):
        command = [sys.executable, "-c", _NOTING, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            process.stdout.readline()
            written = len(list(tmp_path.rglob("*.parquet")))
            while len(list(tmp_path.rglob("*.parquet"))) <= written:
                pass
            time.sleep(0.01 * kill)
            process.send_signal(signal.SIGKILL)
    files = [f for f in Root(tmp_path).files("usage") if f.endswith(".parquet")]
    whole = pl.concat([read_frame(Root(tmp_path), file, USAGE) for file in files])
    assert whole.filter(pl.col("rank") == 0).height == whole.filter(pl.col("rank") == 1).height > 0
