from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.root import Root
from storage.schemas import DROPPED, Dropped, to_frame
from storage.state import append_dropped, read_runs, read_sources, write_run, write_source
from storage.tombstones import FORGOTTEN, Forgotten, Tombstone, add_tombstones, mark_purged


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


NOW = datetime(2026, 5, 6, 7, tzinfo=UTC)
PARTS = st.text(st.sampled_from("abAB-2"), min_size=1, max_size=3)
IDS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def stones(root: Path, *tombstones: Tombstone) -> Forgotten:
    return add_tombstones(Root(root), tombstones, NOW)


@pytest.mark.parametrize(
    ("doc_id", "covered"),
    [
        ("Owner/Repo", True),
        ("owner/repo/a", True),
        ("OWNER/REPO/a/b", True),
        ("owner/repo2", False),
        ("owner/repo2/a", False),
        ("owner", False),
        ("x/owner/repo", False),
        ("owner/repo-fork/repo", False),
    ],
)
def test_a_repository_covers_itself_and_what_is_below_it(tmp_path: Path, doc_id: str, covered: bool) -> None:
    found = stones(tmp_path, Tombstone("owner/Repo", "repository", "owner/repo"))
    assert found.covers(doc_id) is covered
    assert found.covers_repository(doc_id) is covered


@pytest.mark.parametrize(
    ("doc_id", "covered"),
    [("o/r/skill", True), ("O/R/Skill", True), ("o/r/skill/deeper", False), ("o/r", False)],
)
def test_a_document_covers_itself_alone(tmp_path: Path, doc_id: str, covered: bool) -> None:
    found = stones(tmp_path, Tombstone("o/r/Skill", "document", "o/r/skill"))
    assert found.covers(doc_id) is covered
    assert not found.covers_repository(doc_id)


def test_a_text_is_covered_under_any_id(tmp_path: Path) -> None:
    found = stones(tmp_path, Tombstone("o/r", "document", "o/r", raw_hash="r1", body_hash="b1"))
    assert found.covers("x/y", "r1")
    assert found.covers("x/y", None, "b1")
    assert not found.covers("x/y", "b1", "r1")
    assert not found.covers("x/y")


def test_nothing_is_covered_where_nothing_was_forgotten(tmp_path: Path) -> None:
    found = Forgotten.load(Root(tmp_path))
    assert not found
    assert not found.covers("o/r", None, None)
    assert not Forgotten.none().covers_repository("o/r")


def test_a_tombstone_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    stone = Tombstone("o/r/A", "document", "O/r/A", raw_hash="r1")
    stones(tmp_path, stone)
    mark_purged(Root(tmp_path), NOW)
    later = NOW + timedelta(days=1)
    found = add_tombstones(Root(tmp_path), [stone, Tombstone("o/r/a", "document", "o/r/a")], later)
    rows = found.rows.sort("since").select("doc_id", "raw_hash", "since", "purged_at").rows()
    assert rows == [("o/r/A", "r1", NOW, NOW), ("o/r/a", None, later, None)]
    assert found.of("O/R/A").height == 2


def test_only_what_was_not_yet_purged_is_marked(tmp_path: Path) -> None:
    root = Root(tmp_path)
    stones(tmp_path, Tombstone("a", "document", "a"))
    mark_purged(root, NOW)
    stones(tmp_path, Tombstone("b", "document", "b"))
    mark_purged(root, NOW + timedelta(hours=1))
    found = dict(Forgotten.load(root).rows.select("key", "purged_at").iter_rows())
    assert found == {"a": NOW, "b": NOW + timedelta(hours=1)}


def test_tombstones_hold_no_text() -> None:
    assert set(FORGOTTEN) == {
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
