"""State between runs: what was dropped, read, run and forgotten; usage of what is served."""

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
from hypothesis import given
from hypothesis import strategies as st

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import DROPPED, Dropped, to_frame
from storage.state import append_dropped, read_runs, read_sources, write_run, write_source
from storage.tombstones import FORGOTTEN, Forgotten, Tombstone, add_tombstones, mark_purged
from storage.usage import DROPPED as LOST
from storage.usage import USAGE, UsageLog, read_usage, tidy_usage


def test_what_a_run_drops_adds_up_in_its_file_each_row_once(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for doc_ids in ((), ("rye", "spelt"), ("spelt", "oat")):
        rows = [Dropped(d, "dir:x", "empty", "zero bytes") for d in doc_ids]
        append_dropped(root, "1", to_frame(rows, DROPPED, run_id="1"))
        assert (tmp_path / "dropped").exists() == bool(doc_ids)
    held = pl.read_parquet(tmp_path / "dropped/1.parquet")
    assert held["doc_id"].to_list() == ["rye", "spelt", "oat"]


def test_sources_are_remembered_each_for_itself(tmp_path: Path) -> None:
    root = Root(tmp_path)
    write_source(root, "dir:a", {"state": "failed"})
    write_source(root, "dir:b", {"state": "complete"})
    write_source(root, "dir:a", {"state": "complete"})
    assert read_sources(root) == {"dir:a": {"state": "complete"}, "dir:b": {"state": "complete"}}
    write_source(root, "dir:a", None)
    assert read_sources(root) == {"dir:b": {"state": "complete"}}


def test_the_last_runs_come_newest_first_and_one_that_was_given_a_name_where_it_began(tmp_path: Path) -> None:
    root = Root(tmp_path)
    begun = {f"2026010{d}T021500-a0b1c{d}": f"0{d}T02:15" for d in range(1, 5)} | {"manual": "02T12:00"}
    for name, at in begun.items():
        run = {"state": "complete", "specs": [], "sources": []}
        write_run(root, {**run, "run_id": name, "started_at": f"2026-01-{at}:00+00:00"})
    for last in (1, 3):
        newest = ["20260104T021500-a0b1c4", "20260103T021500-a0b1c3", "manual"]
        assert [r["run_id"] for r in read_runs(root, last=last)] == newest[:last]


NOW = datetime(2026, 5, 6, 7, tzinfo=UTC)
PARTS = st.text(st.sampled_from("abAB-2"), min_size=1, max_size=3)
IDS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def stones(root: Path, *tombstones: Tombstone) -> Forgotten:
    return add_tombstones(Root(root), tombstones, NOW)


def test_a_repository_covers_itself_and_what_is_below_it(tmp_path: Path) -> None:
    found = stones(tmp_path, Tombstone("owner/Repo", "repository", "owner/repo"))
    for doc_id in ("Owner/Repo", "owner/repo/a", "OWNER/REPO/a/b"):
        assert found.covers(doc_id), doc_id
        assert found.covers_repository(doc_id), doc_id
    for doc_id in ("owner/repo2", "owner/repo2/a", "owner", "x/owner/repo", "owner/repo-fork/repo"):
        assert not found.covers(doc_id), doc_id
        assert not found.covers_repository(doc_id), doc_id


def test_a_document_covers_itself_alone_and_its_text_under_any_id(tmp_path: Path) -> None:
    assert not Forgotten.load(Root(tmp_path))
    for nothing in (Forgotten.load(Root(tmp_path)), Forgotten.none()):
        assert not nothing.covers("o/r", None, None)
        assert not nothing.covers_repository("o/r")
    found = stones(tmp_path, Tombstone("o/r", "document", "o/r", raw_hash="r1", body_hash="b1"))
    asked: list[tuple[str | None, ...]] = [("o/r",), ("O/R",), ("x/y", "r1"), ("x/y", None, "b1")]
    assert all(found.covers(*each) for each in asked)  # type: ignore[arg-type]
    assert not any(found.covers(*each) for each in (("o/r/deeper",), ("o",), ("x/y", "b1", "r1"), ("x/y",)))
    assert not found.covers_repository("o/r")


def test_a_tombstone_that_is_there_stays_as_it_is_but_for_its_purge(tmp_path: Path) -> None:
    stone = Tombstone("o/r/A", "document", "O/r/A", raw_hash="r1")
    stones(tmp_path, stone)
    mark_purged(Root(tmp_path), NOW)
    later = NOW + timedelta(days=1)
    found = add_tombstones(Root(tmp_path), [stone, Tombstone("o/r/a", "document", "o/r/a")], later)
    rows = found.rows.sort("since").select("doc_id", "raw_hash", "since", "purged_at").rows()
    assert rows == [("o/r/A", "r1", NOW, NOW), ("o/r/a", None, later, None)]
    assert found.of("O/R/A").height == 2
    mark_purged(Root(tmp_path), later)
    assert Forgotten.load(Root(tmp_path)).rows.sort("since")["purged_at"].to_list() == [NOW, later]
    assert set(found.rows.columns) == {
        "key", "doc_id", "scope", "target", "copy", "raw_hash", "body_hash", "since", "purged_at",
    }  # fmt: skip


@given(st.lists(st.tuples(IDS, st.sampled_from(["document", "repository"])), max_size=4), IDS)
def test_what_is_covered_is_what_the_definition_says(held: list[tuple[str, str]], asked: str) -> None:
    rows = [(k.casefold(), k, scope, k, False, None, None, NOW, None) for k, scope in held]
    found = Forgotten(pl.DataFrame(rows, schema=FORGOTTEN, orient="row"))
    key = asked.casefold()
    expected = any(
        key == k.casefold() or (scope == "repository" and key.startswith(f"{k.casefold()}/"))
        for k, scope in held
    )
    assert found.covers(asked) is expected
    assert found.covers(asked.swapcase()) is expected


TODAY = datetime.now(UTC)


def log_of(root: Root, mode: str = "texts") -> UsageLog:
    return UsageLog(root, mode, lambda text: text.replace("hunter2", "*"))  # type: ignore[arg-type]


def test_what_is_noted_is_read_again_by_event_and_document(tmp_path: Path) -> None:
    root = Root(tmp_path)
    log = log_of(root)
    log.note("http", "search", ["a", "b"], query="the key hunter2", fits=True, milliseconds=3.5, version="v")
    log.note("hook", "search", [], query="nothing", fits=False)
    log.flush()
    rows = read_usage(root, TODAY)
    assert rows.filter(pl.col("rank") > 0)["doc_id"].to_list() == ["a", "b"]
    assert rows.filter(pl.col("rank") == 0)["query"].to_list() == ["the key *", "nothing"]
    assert os.stat(tmp_path / "usage").st_mode & 0o077 == 0


@pytest.mark.parametrize(("mode", "queries"), [("off", []), ("counts", [None]), ("texts", ["q"])])
def test_what_is_kept_is_what_was_consented_to(tmp_path: Path, mode: str, queries: list[str | None]) -> None:
    log = log_of(Root(tmp_path), mode)
    log.start()
    log.note("http", "search", [], query="q", fits=False)
    log.close()
    assert (tmp_path / "usage").exists() == bool(queries)
    assert read_usage(Root(tmp_path), TODAY)["query"].to_list() == queries


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
    rows = read_usage(root, TODAY)
    assert rows.filter(pl.col("action") == LOST)["rank"].to_list() == [10_007]
    assert rows.filter(pl.col("action") == "page").height == 1


def test_days_that_are_over_are_merged_and_old_ones_removed(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for days in (0, 1, 90, 91):
        at = TODAY - timedelta(days=days)
        for part in range(4):  # of a day that was being merged, rows lie there twice
            row = (f"{days}-{part % 2}", at, "http", "page", 0, None, None, 1.0, "v", None)
            place = f"usage/day={at.date()}/part-{part}.parquet"
            write_frame(root, place, pl.DataFrame([row], USAGE, orient="row"), USAGE)
    before = read_usage(root, TODAY - timedelta(days=90))
    tidy_usage(root, TODAY)
    counts = [len(list(day.iterdir())) for day in sorted((tmp_path / "usage").iterdir())]
    assert (counts, before.height) == ([1, 1, 4], 6)
    assert read_usage(root, TODAY - timedelta(days=400)).equals(before)


def test_half_a_character_is_written_and_what_cannot_be_merged_drops_nothing(tmp_path: Path) -> None:
    (tmp_path / "usage/day=2020-01-01").mkdir(parents=True)
    (tmp_path / "usage/day=2020-01-01/part-a.parquet").write_bytes(b"no table")
    log = log_of(Root(tmp_path))
    log.note("http", "search", ["a"], query="half \ud83d")
    log.flush()
    assert (tmp_path / "usage/day=2020-01-01").exists()  # only a server tidies
    rows = read_usage(Root(tmp_path), TODAY)
    assert rows["query"].to_list() == ["half ?", None]
    log.note("http", "search", ["a"], fits="odd")  # type: ignore[arg-type]
    log.flush()
    log.note("http", "page", [])
    log.flush()
    assert read_usage(Root(tmp_path), TODAY).filter(pl.col("action") == LOST)["rank"].to_list() == [1]


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
