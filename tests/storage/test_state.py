from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from storage.root import Root
from storage.schemas import DROPPED, Dropped, to_frame
from storage.state import append_dropped, read_runs, read_sources, write_run, write_source
from storage.tombstones import FORGOTTEN, Forgotten, Tombstone, add_tombstones, mark_purged


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
    begun = {"manual": "02T12:00"} | {
        f"2026010{day}T021500-a0b1c{day}": f"0{day}T02:15" for day in range(1, 5)
    }
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
