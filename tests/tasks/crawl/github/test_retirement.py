from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.root import Root
from storage.state import LISTED, listed_table
from tasks.crawl.github.repositories import MISSED_FOR, MISSES, NO_MISSES, ReferenceCounts, fate_of

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def fates(days: list[float], reason: str = "missing") -> list[str]:
    row: dict[str, Any] = dict(NO_MISSES)
    found = []
    for day in days:
        fate, row = fate_of(reason, row, NOW + timedelta(days=day))
        found.append(fate)
    return found


@pytest.mark.parametrize("reason", ["missing", "denied"])
def test_three_misses_over_a_week_retire(reason: str) -> None:
    assert fates([0, 3, 7], reason) == ["stale", "stale", "retired"]


@pytest.mark.parametrize("days", [[0, 7], [0, 1, 2, 3, 4, 5, 6.9]])
def test_fewer_misses_or_fewer_days_do_not(days: list[float]) -> None:
    assert set(fates(days)) == {"stale"}


def test_what_is_withdrawn_by_law_goes_at_once() -> None:
    assert fates([0], "withdrawn") == ["withdrawn"]


@pytest.mark.parametrize("reason", ["timeout", "server", "quota", "too-large", "connection"])
def test_what_is_none_of_the_repositorys_doing_counts_for_nothing(reason: str) -> None:
    missed = {"misses": 2, "first_missed_at": NOW, "state": "missing"}
    fate, row = fate_of(reason, missed, NOW + timedelta(days=30))
    assert fate == "stale"
    assert "misses" not in row


@given(st.lists(st.floats(0, 60), max_size=12).map(sorted))
def test_nothing_is_retired_before_both_bounds_are_reached(days: list[float]) -> None:
    for n, fate in enumerate(fates(days), 1):
        long_enough = timedelta(days=days[n - 1]) - timedelta(days=days[0]) >= MISSED_FOR
        assert (fate == "retired") == (n >= MISSES and long_enough)


def test_a_document_is_unclaimed_once_all_its_rows_are_released(tmp_path: Path) -> None:
    place = {"repository": "ann/garden", "rest": "dill", "source": "skillsmp", "outcome": "ok"}
    rows = [{**place, "ref": ref, "doc_id": "ann/garden/dill"} for ref in ("main", "dev")]
    frame = pl.DataFrame([{n: r.get(n) for n in LISTED} for r in rows], schema=LISTED)
    listed_table(Root(tmp_path)).upsert(frame)
    references = ReferenceCounts(Root(tmp_path), "skillsmp")
    references.release(rows[:1])
    assert references.unreferenced(rows) == references.unreferenced(rows) == []
    references.release(rows[1:])
    assert references.unreferenced(rows) == rows
