from __future__ import annotations

import itertools
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DOCUMENTS
from tasks.crawl.source.identity import doc_key
from tasks.refine.duplicates.exact import fold, owner_of, preferred, ranked

COLUMNS = ("doc_id", "source", "body_hash", "repo", "licence", "stars", "first_seen_at", "author")
SCHEMA = {name: DOCUMENTS[name] for name in COLUMNS}
NEAR = pl.Schema({"owner": pl.String, "body_hash": pl.String, "onto": pl.String, "similarity": pl.Float64})
Row = tuple[str, str, str | None, str | None, str | None, int | None, datetime | None]
NearRow = tuple[str, str, str, float]

_NEVER = pl.lit(None, pl.Datetime("us", "UTC"))


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def folded(
    rows: list[Row], near: list[NearRow] | None = None, files: dict[str, str] | None = None
) -> dict[str, list[object]]:
    frame = pl.DataFrame([(*row, None) for row in rows], schema=SCHEMA, orient="row")
    bundles = pl.Series([(files or {}).get(row[0], "") for row in rows], dtype=pl.String)
    documents = ranked(frame.with_columns(owner=owner_of(), bundle=bundles))
    found = fold(documents, pl.DataFrame(near or [], schema=NEAR, orient="row"))
    return {doc_id: rest for doc_id, *rest in found.iter_rows()}


def survivors(rows: list[Row]) -> dict[str, object]:
    return {doc_id: survivor for doc_id, (survivor, *_) in folded(rows).items()}


ROWS = st.lists(
    st.tuples(
        st.text("abAB/", min_size=1, max_size=4), st.sampled_from(["git+x", "parquet:x"]),
        st.sampled_from(["h1", "h2", "h3", None]), st.sampled_from([None, "o/r"]),
        st.sampled_from([None, "MIT"]), st.one_of(st.none(), st.integers(0, 2)),
        st.one_of(st.none(), st.integers(1, 3).map(day)),
    ),
    unique_by=lambda row: row[0],
    max_size=12,
)  # fmt: skip


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (
            ("z", "parquet:x", "h", "o/kilns", None, 0, day(9)),
            ("a", "git+x", "h", "x/Awesome-Agent-Skills", "MIT", 99, day(1)),
        ),
        (("z", "parquet:x", "h", None, None, 0, day(1)), ("a", "git+x", "h", "o/r", "MIT", 99, day(2))),
        (("z", "s", "h", None, None, 5, day(1)), ("a", "s", "h", None, None, 5, None)),
        (("z", "git+x", "h", None, None, 0, day(1)), ("a", "parquet:x", "h", "o/r", "MIT", 99, day(1))),
        (("z", "s", "h", "o/r", None, 0, day(1)), ("a", "s", "h", None, "MIT", 99, day(1))),
        (("z", "s", "h", None, "MIT", 0, day(1)), ("a", "s", "h", None, None, 99, day(1))),
        (("z", "s", "h", None, "MIT", 5, day(1)), ("a", "s", "h", None, "MIT", 4, day(1))),
        (("z", "s", "h", None, None, 0, day(1)), ("a", "s", "h", None, None, None, day(1))),
        (("o/r/skills/z", "s", "h", "o/r", None, 5, day(1)), ("o/r/.a/z", "s", "h", "o/r", "MIT", 5, day(1))),
        (("o/r/z/z", "s", "h", "o/r", None, 5, day(1)), ("o/r/a/a/z", "s", "h", "o/r", None, 5, day(1))),
        (("a", "s", "h", None, None, 5, day(1)), ("B", "s", "h", None, None, 5, day(1))),
        (("A", "s", "h", None, None, 5, day(1)), ("a", "s", "h", None, None, 5, day(1))),
    ],
    ids=[
        "not from an aggregator", "older", "time known", "origin", "repository known", "licence", "stars",
        "stars known", "not in a hidden folder", "shorter path", "id lower-cased", "id as written",
    ],
)  # fmt: skip
def test_the_survivor_is_chosen_by_rule(better: Row, worse: Row) -> None:
    expected = {better[0]: better[0], worse[0]: better[0]}
    assert survivors([better, worse]) == expected
    assert survivors([worse, better]) == expected


@pytest.mark.parametrize(
    ("repo", "is_aggregator"),
    [
        ("Majiayu000/claude-skill-registry", True),
        ("o/awesome-claude-skills", True),
        ("o/my-awesome-skills-list", True),
        ("o/agent-skills-mirror", True),
        ("o/skills", False),
        ("o/skill-registry-client", False),
        ("awesome-skills/kilns", False),
    ],
)
def test_a_repository_that_publishes_again_what_others_wrote_is_known(repo: str, is_aggregator: bool) -> None:
    theirs: Row = ("a", "git+x", "h", repo, "MIT", 99, day(1))
    found = survivors([theirs, ("z", "dir:x", "h", None, None, None, None)])
    assert found["a"] == ("z" if is_aggregator else "a")


@given(st.data(), ROWS)
def test_each_text_has_one_survivor_whatever_the_order_of_rows_and_a_null_is_no_text(
    data: st.DataObject, rows: list[Row]
) -> None:
    found = survivors(rows)
    assert survivors(data.draw(st.permutations(rows))) == found
    hashes = {row[0]: row[2] for row in rows}
    assert found.keys() == hashes.keys()
    assert all(found[str(survivor)] == survivor for survivor in found.values())
    assert all(hashes[doc_id] == hashes[str(survivor)] for doc_id, survivor in found.items())
    distinct = len(set(hashes.values()) - {None}) + list(hashes.values()).count(None)
    assert len(set(found.values())) == distinct


def test_all_copies_of_a_text_follow_it_onto_the_text_it_is_near_to() -> None:
    rows: list[Row] = [
        (doc_id, "s", f"h{doc_id[0]}", None, None, None, day(1)) for doc_id in ("a1", "a2", "b1", "b2", "c1")
    ]
    assert folded(rows, [("s\n", "hb", "ha", 0.9)]) == {
        "a1": ["a1", None, None],
        "a2": ["a1", 1.0, "duplicate"],
        "b1": ["a1", 0.9, "near_duplicate"],
        "b2": ["a1", 0.9, "near_duplicate"],
        "c1": ["c1", None, None],
    }


OWN, OTHER = ("github:ann/a", "Ann/A"), ("skillsmp", "bob/b")


@pytest.mark.parametrize(
    ("whose", "files", "folds"),
    [
        ([OWN, OTHER], {"a": "x", "b": "x"}, {"b": "a"}),
        ([OWN, OTHER], {"a": "x", "b": "y"}, {}),
        ([OWN, ("git+https://github.com/ann/c", "ann/c")], {"a": "x", "b": "y"}, {"b": "a"}),
        ([("git+file:///x/s", "local/s"), ("git+file:///y/s", "local/s")], {"a": "x", "b": "y"}, {}),
        ([("parquet:p", "ann/a"), ("github:ann/a", "ann/a")], {"a": "x", "b": "y"}, {}),
        # What is its neighbour's by its files, and that one's by its owner, is not the first's.
        ([OWN, ("skillsmp", "ann/c"), OTHER], {"a": "x", "b": "y", "c": "y"}, {"b": "a"}),
    ],
)
def test_a_copy_folds_only_with_equal_files_or_the_same_owner(
    whose: list[tuple[str, str]], files: dict[str, str], folds: dict[str, str]
) -> None:
    rows: list[Row] = [
        (doc_id, source, "h", repo, None, None, day(place + 1))
        for place, (doc_id, (source, repo)) in enumerate(zip("abc", whose, strict=False))
    ]
    found = folded(rows, files=files)
    assert {doc_id: kept for doc_id, (kept, *_) in found.items() if kept != doc_id} == folds


SOURCES = ["git+https://example.org/a", "github:ann/a", "parquet:a", "dir:a", "mcp-registry", "unheard-of"]


@pytest.mark.parametrize(("better", "worse"), list(itertools.pairwise(SOURCES)))
def test_one_document_of_two_sources_is_taken_from_the_nearer_to_its_origin(better: str, worse: str) -> None:
    rows = pl.DataFrame({"doc_id": ["Ann/A", "ann/a", "ann/b"], "source": [worse, better, worse]})
    assert preferred(rows.with_columns(last_seen_at=_NEVER)).rows() == [
        (False, "ann/a", better),
        (True, None, None),
        (True, None, None),
    ]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (("github:a/b", day(1)), ("skillsmp:clay", day(1))),
        (("awesome:list.md", None), ("mcp-registry", None)),
        (("dir:/b/s", day(2)), ("dir:/a/s", day(1))),
    ],
    ids=["by name", "by name without a time", "seen last"],
)
def test_of_two_sources_of_a_rank_the_one_seen_last_counts(
    better: tuple[str, datetime | None], worse: tuple[str, datetime | None]
) -> None:
    schema = {"doc_id": pl.String, "source": pl.String, "last_seen_at": pl.Datetime("us", "UTC")}
    rows = pl.DataFrame([("a", *worse), ("a", *better), ("a", *better)], schema=schema, orient="row")
    assert preferred(rows)["kept"].to_list() == [False, True, False]
    assert preferred(rows)["lost_to_source"].to_list() == [better[0], None, better[0]]


@given(st.lists(st.tuples(st.text("aAßs", min_size=1, max_size=2), st.sampled_from(SOURCES)), max_size=10))
def test_every_row_is_answered_and_one_a_document_is_kept(pairs: list[tuple[str, str]]) -> None:
    rows = pl.DataFrame(pairs, schema={"doc_id": pl.String, "source": pl.String}, orient="row")
    answer = preferred(rows.with_columns(last_seen_at=_NEVER))
    assert answer.height == len(pairs)
    kept = [doc_key(doc_id) for doc_id in rows.filter(answer["kept"])["doc_id"]]
    assert sorted(kept) == sorted({doc_key(doc_id) for doc_id, _ in pairs})
