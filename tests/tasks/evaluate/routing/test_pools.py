from __future__ import annotations

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.schemas import Qrel
from tasks.evaluate.routing.data import SKILLS, RoutingBench, RoutingQuery, parts_of

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


def test_all_skills_are_one_part_and_so_are_the_benchs_own() -> None:
    ((bench, every),) = parts_of("all", BENCH, FRAME, OWN)
    ((same, own),) = parts_of("bench", BENCH, FRAME, OWN)

    assert bench == same == BENCH
    assert (ids(every), ids(own)) == (list(IDS), list(IDS[:4]))


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
