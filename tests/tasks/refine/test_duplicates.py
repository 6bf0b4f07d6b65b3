from __future__ import annotations

import itertools
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DOCUMENTS
from tasks.refine.duplicates import fold, preferred

COLUMNS = ("doc_id", "source", "body_hash", "stars", "first_seen_at", "licence")
SCHEMA = {name: DOCUMENTS[name] for name in COLUMNS}
Row = tuple[str, str, str | None, int | None, datetime | None, str | None]

_NEVER = pl.lit(None, pl.Datetime("us", "UTC"))


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def survivors(rows: list[Row]) -> dict[str, str]:
    return dict(fold(frame(rows)).iter_rows())


ROWS = st.lists(
    st.tuples(
        st.text("abAB/", min_size=1, max_size=4),
        st.just("git+x"),
        st.sampled_from(["h1", "h2", "h3", None]),
        st.one_of(st.none(), st.integers(0, 2)),
        st.one_of(st.none(), st.integers(1, 3).map(day)),
        st.sampled_from([None, "MIT"]),
    ),
    unique_by=lambda row: row[0],
    max_size=12,
)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (("z", "s", "h", 0, day(9), "MIT"), ("a", "s", "h", 99, day(1), None)),
        (("z", "s", "h", 5, day(9), "MIT"), ("a", "s", "h", 4, day(1), "MIT")),
        (("z", "s", "h", 0, day(9), None), ("a", "s", "h", None, day(1), None)),
        (("z", "s", "h", 5, day(1), None), ("a", "s", "h", 5, day(2), None)),
        (("z", "s", "h", 5, day(1), None), ("a", "s", "h", 5, None, None)),
        (("a", "s", "h", 5, day(1), None), ("B", "s", "h", 5, day(1), None)),
        (("A", "s", "h", 5, day(1), None), ("a", "s", "h", 5, day(1), None)),
    ],
    ids=["licence", "stars", "stars known", "older", "time known", "id lower-cased", "id as written"],
)
def test_the_survivor_is_chosen_by_rule(better: Row, worse: Row) -> None:
    expected = {better[0]: better[0], worse[0]: better[0]}
    assert survivors([better, worse]) == expected
    assert survivors([worse, better]) == expected


@given(st.data(), ROWS)
def test_the_order_of_rows_has_no_influence(data: st.DataObject, rows: list[Row]) -> None:
    assert survivors(data.draw(st.permutations(rows))) == survivors(rows)


@given(ROWS)
def test_each_text_has_one_survivor_that_survives_itself(rows: list[Row]) -> None:
    folded = survivors(rows)
    hashes = {row[0]: row[2] for row in rows}
    assert list(folded) == [row[0] for row in rows]
    assert all(folded[survivor] == survivor for survivor in folded.values())
    assert all(hashes[doc_id] == hashes[survivor] for doc_id, survivor in folded.items())
    distinct = len(set(hashes.values()) - {None}) + list(hashes.values()).count(None)
    assert len(set(folded.values())) == distinct


def test_rows_without_a_hash_are_never_folded() -> None:
    rows: list[Row] = [("a", "s", None, 1, day(1), None), ("b", "s", None, 1, day(1), None)]
    assert survivors(rows) == {"a": "a", "b": "b"}


SOURCES = ["git+https://example.org/a", "github:ann/a", "parquet:a", "dir:a", "unheard-of"]


@pytest.mark.parametrize(("better", "worse"), list(itertools.pairwise(SOURCES)))
def test_one_document_of_two_sources_is_taken_from_the_nearer_to_its_origin(better: str, worse: str) -> None:
    rows = pl.DataFrame({"doc_id": ["Ann/A", "ann/a", "ann/b"], "source": [worse, better, worse]})
    assert preferred(rows.with_columns(last_seen_at=_NEVER)).rows() == [
        (0, "Ann/A", worse, False, "ann/a", better),
        (1, "ann/a", better, True, None, None),
        (2, "ann/b", worse, True, None, None),
    ]


def test_archives_of_all_kinds_rank_alike() -> None:
    rows = pl.DataFrame({"doc_id": ["a"] * 3, "source": ["skillsmp:clay", "github:a/b", "awesome:list.md"]})
    assert preferred(rows.with_columns(last_seen_at=_NEVER))["kept"].to_list() == [False, False, True]


def test_equal_rows_keep_the_first_and_list_the_rest() -> None:
    rows = pl.DataFrame({"doc_id": ["a", "a"], "source": ["dir:x", "dir:x"]})
    assert preferred(rows.with_columns(last_seen_at=_NEVER)).rows() == [
        (0, "a", "dir:x", True, None, None),
        (1, "a", "dir:x", False, "a", "dir:x"),
    ]


@given(st.lists(st.tuples(st.text("aAb", min_size=1, max_size=2), st.sampled_from(SOURCES)), max_size=10))
def test_every_row_is_answered_and_one_a_document_is_kept(pairs: list[tuple[str, str]]) -> None:
    rows = pl.DataFrame(pairs, schema={"doc_id": pl.String, "source": pl.String}, orient="row")
    answer = preferred(rows.with_columns(last_seen_at=_NEVER))
    assert answer.select("doc_id", "source").rows() == pairs
    kept = answer.filter("kept")["doc_id"].str.to_lowercase().to_list()
    assert sorted(kept) == sorted({doc_id.lower() for doc_id, _ in pairs})


def test_of_two_sources_of_a_kind_the_one_seen_last_counts() -> None:
    rows = pl.DataFrame(
        {
            "doc_id": ["local/s/a", "local/s/a"],
            "source": ["dir:/a/s", "dir:/b/s"],
            "last_seen_at": [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
        }
    )
    assert preferred(rows)["kept"].to_list() == [False, True]
