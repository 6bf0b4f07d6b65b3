"""Listed repositories: which are due, and when their documents retire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.root import Root
from storage.state import LISTED, REPOSITORIES, listed_table, repositories_table
from tasks.crawl.github.repositories import (
    MISSED_FOR,
    MISSES,
    NO_MISSES,
    ListedRepository,
    ReferenceCounts,
    due,
    fate_of,
    listed_repositories,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def listed(*places: tuple[str, str], at: datetime = NOW) -> pl.DataFrame:
    rows = [
        {"repository": repository.lower(), "written": repository, "ref": "main", "rest": rest,
         "source": "skillsmp", "source_id": rest, "updated_at": at}
        for repository, rest in places
    ]  # fmt: skip
    return pl.DataFrame([{n: r.get(n) for n in LISTED} for r in rows], schema=LISTED)


def looked_at(units: list[ListedRepository], **values: Any) -> pl.DataFrame:  # noqa: ANN401
    rows = [
        {"repository": u.name.lower(), "ref": u.ref, "source": u.source, "state": "ok",
         "listed": u.digest, "checked_at": NOW, **values}
        for u in units
    ]  # fmt: skip
    return pl.DataFrame([{n: r.get(n) for n in REPOSITORIES} for r in rows], schema=REPOSITORIES)


def nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=REPOSITORIES)


def test_rows_are_grouped_by_repository_whatever_its_letter_case() -> None:
    rows = pl.concat([listed(("Ann/Garden", "a")), listed(("ann/garden", "b"), ("bo/herbs", "c"))])
    units = listed_repositories(rows, nothing())
    assert [(u.name.lower(), len(u.listed)) for u in units] == [("ann/garden", 2), ("bo/herbs", 1)]


def test_what_was_never_looked_at_is_due_and_what_is_as_listed_is_not() -> None:
    rows = listed(("ann/garden", "a"), ("bo/herbs", "c"))
    units = listed_repositories(rows, nothing())
    assert due(units, NOW, 7) == units
    assert due(listed_repositories(rows, looked_at(units)), NOW, 7) == []


def test_a_row_that_is_new_or_updated_makes_its_repository_due() -> None:
    before = looked_at(listed_repositories(listed(("ann/garden", "a"), ("bo/herbs", "c")), nothing()))
    more = listed(("ann/garden", "a"), ("ann/garden", "b"), ("bo/herbs", "c"))
    assert [u.name for u in due(listed_repositories(more, before), NOW, 7)] == ["ann/garden"]
    later = pl.concat([listed(("ann/garden", "a")), listed(("bo/herbs", "c"), at=NOW + timedelta(1))])
    assert [u.name for u in due(listed_repositories(later, before), NOW, 7)] == ["bo/herbs"]


def test_what_could_not_be_looked_at_is_due_again_and_what_was_given_up_is_not() -> None:
    rows = listed(("ann/garden", "a"))
    units = listed_repositories(rows, nothing())
    for state in ("failed", "missing", "denied"):
        assert due(listed_repositories(rows, looked_at(units, state=state)), NOW, 7), state
    for state in ("gone", "withdrawn", "refused", "too-large"):
        assert not due(listed_repositories(rows, looked_at(units, state=state)), NOW, 7), state


def test_what_changed_comes_first_then_what_failed_then_what_was_not_looked_at_for_longest() -> None:
    places = [("a/recent", "x"), ("b/old", "x"), ("c/older", "x"), ("d/failed", "x"), ("e/new", "x")]
    units = listed_repositories(listed(*places), nothing())
    known = pl.concat([
        looked_at(units[1:2], checked_at=NOW - timedelta(days=9)),
        looked_at(units[2:3], checked_at=NOW - timedelta(days=30)),
        looked_at(units[3:4], state="failed"), looked_at(units[:1]),
    ])  # fmt: skip
    found = due(listed_repositories(listed(*places), known), NOW, 7)
    assert [u.name for u in found] == ["e/new", "d/failed", "c/older", "b/old"]


PLACES = st.lists(st.tuples(st.sampled_from(["a/b", "c/d", "e/f"]), st.sampled_from("xyz")), max_size=12)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLACES, PLACES)
def test_rows_put_in_place_of_others_leave_the_rest_as_they_are(
    tmp_path: Path, first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    root = Root(tmp_path)
    root.delete("state/listed")
    table = listed_table(root)
    table.upsert(listed(*first))
    table.upsert(listed(*second, at=NOW + timedelta(1)))
    found = {(r["repository"], r["rest"]): r["updated_at"] for r in table.read().to_dicts()}
    wanted = {**dict.fromkeys(first, NOW), **dict.fromkeys(second, NOW + timedelta(1))}
    assert found == wanted
    assert table.read().height == len(wanted)


def test_one_repository_of_two_sources_is_remembered_twice(tmp_path: Path) -> None:
    table = repositories_table(Root(tmp_path))
    rows = looked_at(listed_repositories(listed(("ann/garden", "a")), nothing()))
    table.upsert(rows)
    table.upsert(rows.with_columns(source=pl.lit("github:ann/garden")))
    assert sorted(table.read()["source"]) == ["github:ann/garden", "skillsmp"]


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
