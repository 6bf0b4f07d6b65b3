from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import DOCUMENTS, SCHEMA_VERSION, Qrel, RawDocument, to_frame
from storage.state import documents_table
from tasks.evaluate.routing.data import (
    SKILLS,
    RoutingQuery,
    read_copies,
    read_qrels,
    read_skills,
    read_tasks,
    require_judged,
)
from tasks.refine.document import refine_document
from tests.support.roots.hand_written import BREAD, TEA

Lines = Callable[..., Path]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    def write(*records: object, name: str = "given.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
        return path

    return write


def test_a_task_knows_its_groups_where_the_bench_does(lines: Lines) -> None:
    path = lines(
        {"query_id": "a", "text": "Bake.", "length": "short", "distinctive": "few"},
        {"query_id": "b", "query": "Sew.", "domain": "home"},
        {"query_id": "c", "text": "Mend.", "repo": "home/shop", "not_doc_id": "home/shop/sew"},
    )

    assert read_tasks(path) == [
        RoutingQuery("a", "Bake.", "short", "few"),
        RoutingQuery("b", "Sew."),
        RoutingQuery("c", "Mend.", repo="home/shop", not_doc_id="home/shop/sew"),
    ]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "holds no tasks"),
        ([{"query_id": "a", "text": " "}], "its text is blank"),
        (
            [{"query_id": "a", "text": "x"}, {"query_id": "a", "text": "y"}],
            "given.jsonl:2: query_id 'a' occurs",
        ),
        ([{"query_id": "a"}], "`query` is missing"),
    ],
)
def test_tasks_that_cannot_be_asked_are_named(records: list[object], said: str, lines: Lines) -> None:
    with pytest.raises(WrongInput, match=said):
        read_tasks(lines(*records))


def test_a_judgement_without_a_grade_is_relevant(lines: Lines) -> None:
    path = lines(
        {"query_id": "a", "doc_id": "x", "relevance": 3}, {"query_id": "a", "doc_id": "y"},
    )  # fmt: skip

    assert read_qrels(path) == [Qrel("a", "x", 3), Qrel("a", "y", 1)]


@pytest.mark.parametrize("grade", ["3", 1.5, True, None])
def test_a_grade_is_a_whole_number(grade: object, lines: Lines) -> None:
    with pytest.raises(WrongInput, match="a whole number is wanted"):
        read_qrels(lines({"query_id": "a", "doc_id": "x", "relevance": grade}))


def test_a_copy_has_one_original(lines: Lines) -> None:
    again = {"copy_id": "c", "doc_id": "x", "jaccard": 1.0}

    assert read_copies(lines(again, again)) == {"c": "x"}
    assert read_copies(None) == {}
    with pytest.raises(WrongInput, match="'c' is a copy of 'x' in an earlier line"):
        read_copies(lines(again, {"copy_id": "c", "doc_id": "y"}))


def test_skills_are_taken_apart_from_lines_and_parquet_of_whole_files_alike(
    lines: Lines, tmp_path: Path
) -> None:
    of_lines = lines({"doc_id": "me--bread", "content": BREAD})
    of_parquet = tmp_path / "corpus.parquet"
    pl.DataFrame({"id": ["me--tea"], "content": [TEA], "path": ["skills/tea/SKILL.md"]}).write_parquet(
        of_parquet
    )

    skills = read_skills([of_lines, of_parquet])

    assert skills.schema == SKILLS
    assert skills["name"].to_list() == ["bread", "お茶"]
    assert skills["description"].to_list() == ["Bakes wheat bread with yeast at home", "緑茶をいれる方法"]
    assert skills["body"][0].startswith("# Bread\n")


def test_a_skill_without_a_name_has_that_of_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "corpus.parquet"
    pl.DataFrame({"id": ["x"], "content": ["# Tea\n\nPour."], "path": ["a/green-tea"]}).write_parquet(path)

    assert read_skills([path])["name"].to_list() == ["green-tea"]


def test_parts_are_taken_as_they_are(lines: Lines, tmp_path: Path) -> None:
    parts = {"doc_id": "a", "name": "n", "description": "d", "body": "b"}
    path = tmp_path / "parts.parquet"
    pl.DataFrame([parts]).write_parquet(path)

    assert read_skills([path]).to_dicts() == read_skills([lines(parts)]).to_dicts() == [parts]


def test_a_root_is_a_corpus(tmp_path: Path) -> None:
    root, night = Root(tmp_path), datetime(2026, 3, 1, tzinfo=UTC)
    raw = RawDocument(
        doc_id="market/bread", source="by-hand", content=BREAD.encode(), size=len(BREAD), raw_hash=""
    )
    made = refine_document(raw, fetched_at=night, first_seen_at=night)
    rows = to_frame([made], DOCUMENTS, run_id="night", schema_version=SCHEMA_VERSION)
    documents_table(root).replace(["market/bread"], rows)

    skills = read_skills([tmp_path])

    assert skills.schema == SKILLS
    assert skills.select("doc_id", "name").row(0) == ("market/bread", "bread")


def test_of_an_id_in_two_corpora_the_first_is_taken(lines: Lines) -> None:
    parts = {"doc_id": "a", "name": "n", "description": "d", "body": "b"}
    first, second = lines(parts, name="1.jsonl"), lines({**parts, "body": "other"}, name="2.jsonl")

    assert read_skills([first, second])["body"].to_list() == ["b"]


def test_what_is_no_corpus_is_named(lines: Lines, tmp_path: Path) -> None:
    pl.DataFrame({"id": ["a"], "text": ["b"]}).write_parquet(tmp_path / "wrong.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")

    with pytest.raises(WrongInput, match="found id, text"):
        read_skills([tmp_path / "wrong.parquet"])
    with pytest.raises(WrongInput, match="cannot be read as Parquet"):
        read_skills([tmp_path / "broken.parquet"])
    with pytest.raises(WrongInput, match="no root"):
        read_skills([tmp_path])
    with pytest.raises(WrongInput, match="hold no skills"):
        read_skills([lines()])


def test_tasks_are_judged_by_skills_that_are_there() -> None:
    task = RoutingQuery("t", "Bake.")
    skills = pl.DataFrame([("a", "n", "d", "b")], schema=SKILLS, orient="row")

    require_judged([task], [Qrel("t", "a", 1)], skills, {"c": "a"})
    with pytest.raises(WrongInput, match="query 't' has the skill 'z', which no corpus given has"):
        require_judged([task], [Qrel("t", "a", 1), Qrel("t", "z", 1)], skills, {})
    with pytest.raises(WrongInput, match="query 't' has no relevant skill"):
        require_judged([task], [Qrel("t", "a", 0)], skills, {})
    with pytest.raises(WrongInput, match="'a' is both a copy and an original"):
        require_judged([task], [Qrel("t", "a", 1)], skills, {"a": "b", "c": "a"})
