from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.schemas import Qrel
from tasks.evaluate.routing.data import (
    SKILLS,
    RoutingBench,
    RoutingQuery,
    parts_of,
    read_copies,
    read_qrels,
    read_skills,
    read_tasks,
    require_judged,
)
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
    for grade in ("3", 1.5, True, None):
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


def test_a_corpus_without_skills_is_named(lines: Lines) -> None:
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


IDS = ("Tea/Shop/brew", "tea/shop/pour", "tea/shop-two/brew", "bread/shop/bake", "other--skill")
FRAME = pl.DataFrame([(doc_id, "name", "what", "body") for doc_id in IDS], SKILLS, orient="row")
OWN = set(IDS[:4])
BENCH = RoutingBench(
    [
        RoutingQuery("t1", "Brew tea.", repo="tea/shop"),
        RoutingQuery("b1", "Bake bread.", repo="bread/shop"),
        RoutingQuery("t2", "Pour it.", repo="tea/shop"),
    ],
    [
        Qrel("t1", "Tea/Shop/brew", 1),
        Qrel("t1", "bread/shop/bake", 0),
        Qrel("t2", "tea/shop/pour", 1),
        Qrel("b1", "bread/shop/bake", 1),
    ],
    {"other--skill": "tea/shop/pour"},
    [RoutingQuery("n1", "Wash up.", repo="tea/shop")],
)


def ids(frame: pl.DataFrame) -> list[str]:
    return frame["doc_id"].to_list()


def test_each_repository_is_a_part_with_its_tasks_judgements_and_negatives() -> None:
    tea, bread = parts_of("repository", BENCH, FRAME, OWN)
    # Names of repositories are compared without regard to case, and up to their end.
    assert (ids(tea.skills), ids(bread.skills)) == (["Tea/Shop/brew", "tea/shop/pour"], ["bread/shop/bake"])
    assert [task.query_id for task in tea.bench.tasks] == ["t1", "t2"]
    assert {qrel.query_id for qrel in tea.bench.qrels} == {"t1", "t2"}
    assert (len(tea.bench.negatives), len(bread.bench.negatives)) == (1, 0)
    assert tea.bench.copies == BENCH.copies


def test_ids_of_a_repository_may_be_joined_by_dashes() -> None:
    frame = pl.DataFrame(
        [(i, "name", "what", "body") for i in ("Tea--Shop--brew", "tea--shop-two--brew")],
        SKILLS,
        orient="row",
    )
    bench = RoutingBench(BENCH.tasks[:1], [Qrel("t1", "Tea--Shop--brew", 1)], {}, [])
    (tea,) = parts_of("repository", bench, frame, set(frame["doc_id"]))
    assert ids(tea.skills) == ["Tea--Shop--brew"]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (RoutingQuery("t3", "Sip."), "query 't3' names no `repo`"),
        (
            RoutingQuery("t1", "Brew tea.", repo="bread/shop"),
            "query 't1' needs 'Tea/Shop/brew', which is not in",
        ),
    ],
)
def test_a_task_outside_of_its_repository_is_named(task: RoutingQuery, said: str) -> None:
    with pytest.raises(WrongInput, match=said):
        parts_of("repository", RoutingBench([task], BENCH.qrels), FRAME, OWN)


def test_a_repository_of_negatives_alone_is_a_part_if_it_has_skills() -> None:
    alone = RoutingQuery("n2", "Sip.", repo="tea/shop-two")
    bench = RoutingBench(BENCH.tasks, BENCH.qrels, {}, [alone])
    last = parts_of("repository", bench, FRAME, OWN)[-1]
    assert (last.bench.tasks, last.bench.negatives, ids(last.skills)) == ([], [alone], ["tea/shop-two/brew"])
    lost = RoutingBench(BENCH.tasks, BENCH.qrels, {}, [RoutingQuery("n3", "Swim.", repo="swim/shop")])
    with pytest.raises(WrongInput, match="no id of a skill begins with the `repo` 'swim/shop'"):
        parts_of("repository", lost, FRAME, OWN)
