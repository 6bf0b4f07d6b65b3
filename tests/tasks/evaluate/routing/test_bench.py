from __future__ import annotations

import itertools

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.schemas import Qrel
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.bench import RoutingAnswer, answer_negatives, measure_method, run_table, whole
from tasks.evaluate.routing.data import RoutingBench, RoutingQuery
from tasks.evaluate.routing.summary import clusters_of, contest, summarise_method
from tasks.retrieve.baselines.stages import StageRanking

BENCH = RoutingBench(
    [
        RoutingQuery("one", "first", "short", "unique"),
        RoutingQuery("two", "second", "long", "few"),
        RoutingQuery("three", "third", "short"),
    ],
    [Qrel("one", "a", 1), Qrel("two", "b", 1), Qrel("two", "c", 1), Qrel("three", "d", 1)],
    {"copy-a": "a"},
)
GOOD = {"first": ["copy-a", "a"], "second": ["b", "x", "c"], "third": ["d"]}
BAD = {"first": ["x", "a"], "second": ["x", "b"], "third": ["d"]}


def rows(name: str, rankings: dict[str, list[str]]) -> pl.DataFrame:
    return measure_method(BENCH, name, whole(lambda task, _k: rankings[task]))


def test_a_copy_at_the_top_is_a_hit_when_folded_and_none_when_not() -> None:
    found = summarise_method(rows("good", GOOD))
    assert (found["hit@1"], found["unfolded"]["hit@1"]) == (1.0, pytest.approx(2 / 3))
    assert found["fc@10"] == 1.0
    assert found["ci95"]["hit@1"] == [1.0, 1.0]
    assert found["unfolded"]["ci95"]["hit@1"] == [0.0, 1.0]


def test_tasks_of_one_skill_and_of_several_stand_apart_and_so_do_the_groups_of_the_bench() -> None:
    found = summarise_method(rows("bad", BAD))
    assert (found["single"]["queries"], found["single"]["hit@1"]) == (2, 0.5)
    assert (found["multi"]["queries"], found["multi"]["recall@10"]) == (1, 0.5)
    assert {name: part["hit@1"] for name, part in found["by_length"].items()} == {"long": 0.0, "short": 0.5}
    assert {name: part["queries"] for name, part in found["by_distinctive"].items()} == {
        "few": 1,
        "unique": 1,
    }


def test_a_method_is_asked_once_untimed_and_for_as_many_as_folding_may_take() -> None:
    asked: list[tuple[str, int]] = []

    def rank(task: str, k: int) -> list[str]:
        asked.append((task, k))
        return GOOD[task]

    measure_method(BENCH, "good", whole(rank))
    assert asked == [("first", 1001), ("first", 1001), ("second", 1001), ("third", 1001)]


def test_a_time_counts_the_encoding_that_memory_saved() -> None:
    ticks = itertools.count()

    class Slow:
        def encode(self, texts: list[str]) -> object:
            for _ in range(3):
                next(ticks)
            return texts

    memory = Remembering(Slow(), clock=lambda: float(next(ticks)))  # type: ignore[arg-type]

    def rank(task: str, _k: int) -> list[str]:
        memory.encode([task])
        return GOOD[task]

    method = whole(rank, encoder=memory, clock=lambda: float(next(ticks)))
    first, again = method("first", 9)[0].milliseconds, method("first", 9)[0].milliseconds
    assert first == 6000
    assert again == 5000


def staged(task: str, _depth: int) -> list[StageRanking]:
    return [
        StageRanking("dense", BAD[task], 30.0, 1000, scores=[0.5] * len(BAD[task])),
        StageRanking("deep", GOOD[task], 200.0, 10),
    ]


def test_stages_are_measured_each_and_the_last_is_the_answer() -> None:
    found = summarise_method(measure_method(BENCH, "flow", staged))
    assert [(s["stage"], s["k"], s["hit@1"], s["median_ms"]) for s in found["stages"]] == [
        ("dense", 1000, pytest.approx(1 / 3), 30.0),
        ("deep", 10, 1.0, 200.0),
    ]
    assert (found["hit@1"], found["median_ms"], found["p95_ms"]) == (1.0, 230.0, 230.0)
    assert found["mean_ms"] == pytest.approx(230.0)


def test_the_run_tells_what_each_stage_kept_and_its_scores() -> None:
    tasks, negatives = (
        table.with_columns(pool=pl.lit("all"))
        for table in (measure_method(BENCH, "flow", staged), answer_negatives(BENCH, "flow", staged))
    )
    run = run_table(tasks, negatives).filter(query=BENCH.tasks[0].query_id)
    text = BENCH.tasks[0].text
    for stage, ranking, scores in (("dense", BAD[text], [0.5] * len(BAD[text])), ("deep", GOOD[text], [])):
        kept = run.filter(stage=stage, measure="candidate").sort("value")
        assert (kept["doc_id"].to_list(), kept["value"].to_list()) == (
            list(ranking), list(range(1, len(ranking) + 1))
        )  # fmt: skip
        assert run.filter(stage=stage, measure="candidate_score")["value"].to_list() == scores


def test_a_method_of_one_stage_has_none_to_tell_of() -> None:
    assert summarise_method(rows("good", GOOD))["stages"] == []


def test_a_contest_counts_wins_and_losses_task_by_task() -> None:
    both = pl.concat([rows("bad", BAD), rows("good", GOOD), rows("same", BAD)])
    by_name = {(c["method"], c["measure"]): c for c in contest(both, "bad")}
    won = by_name["good", "hit@1"]
    assert (won["wins"], won["losses"], won["ties"]) == (2, 0, 1)
    assert (won["difference"], won["relative"]) == (pytest.approx(2 / 3), pytest.approx(2))
    assert [by_name["same", "hit@1"][key] for key in ("difference", "p")] == [0.0, 1.0]
    assert won["p_adjusted"] == min(1.0, 2 * won["p"])


def test_a_baseline_must_have_been_measured() -> None:
    with pytest.raises(WrongInput, match="baseline 'zsum' was not measured; measured were good"):
        contest(rows("good", GOOD), "zsum")


SHOPS = RoutingBench(
    [
        RoutingQuery("one", "first", repo="tea/shop"),
        RoutingQuery("two", "second", repo="tea/shop"),
        RoutingQuery("three", "third", repo="bread/shop"),
    ],
    [Qrel("one", "a", 1), Qrel("two", "b", 1), Qrel("three", "d", 1)],
    {"copy-a": "a"},
    [RoutingQuery("four", "fourth", repo="tea/shop", not_doc_id="a"), RoutingQuery("five", "fifth")],
)
ANSWERS = {
    "first": RoutingAnswer(["copy-a"], 0.9, 0.7),
    "second": RoutingAnswer(["x", "b"], 0.8),
    "third": RoutingAnswer(["d"], 0.6),
    "fourth": RoutingAnswer(["copy-a", "b"], 0.5, 0.1),
    "fifth": RoutingAnswer([]),
}


def test_a_methods_scores_stand_beside_its_measures() -> None:
    found = measure_method(SHOPS, "scored", whole(lambda task, _k: ANSWERS[task])).filter("folded")
    assert found["score"].to_list() == [0.9, 0.8, 0.6]
    assert found["fit"].to_list() == [0.7, None, None]
    assert rows("good", GOOD)["score"].null_count() == 6


def test_the_first_skill_of_a_negative_is_told_a_copy_as_its_original() -> None:
    found = answer_negatives(SHOPS, "scored", whole(lambda task, _k: ANSWERS[task]))
    assert found.rows() == [
        ("scored", "four", "tea/shop", "a", "a", 0.5, 0.1),
        ("scored", "five", None, None, None, None, None),
    ]


def test_a_negative_is_answered_by_the_last_stage() -> None:
    bench = RoutingBench(BENCH.tasks, BENCH.qrels, negatives=[RoutingQuery("n", "second")])
    assert answer_negatives(bench, "flow", staged)["first"].to_list() == ["b"]


def test_tasks_are_clustered_by_repository_then_by_skill_and_stand_alone_otherwise() -> None:
    found = measure_method(SHOPS, "scored", whole(lambda task, _k: ANSWERS[task])).filter("folded")
    assert clusters_of(found) == ("repositories", ["tea/shop", "tea/shop", "bread/shop"])
    assert clusters_of(found.filter(repo="tea/shop")) == ("skills", ["a", "b"])
    assert clusters_of(found.with_columns(repo=pl.lit(None, pl.String)))[0] == "tasks"


def test_repositories_are_summed_up_apart_and_intervals_say_what_they_are_over() -> None:
    found = summarise_method(measure_method(SHOPS, "scored", whole(lambda task, _k: ANSWERS[task])))
    assert {repo: part["hit@1"] for repo, part in found["by_repo"].items()} == {
        "bread/shop": 1.0,
        "tea/shop": 0.5,
    }
    assert (found["interval_over"], found["by_repo"]["tea/shop"]["interval_over"]) == (
        "repositories",
        "skills",
    )
    # Both repositories are drawn, or one of them twice.
    assert found["ci95"]["hit@1"] == [0.5, 1.0]
    assert summarise_method(rows("good", GOOD))["interval_over"] == "tasks"


def test_a_contest_draws_repositories_where_they_are_known() -> None:
    method = whole(lambda task, _k: ANSWERS[task])
    worse = whole(lambda _task, _k: ["x", "a", "b", "d"])
    both = pl.concat([measure_method(SHOPS, "worse", worse), measure_method(SHOPS, "better", method)])
    (won,) = (c for c in contest(both, "worse") if c["measure"] == "hit@1")
    assert won["difference"] == pytest.approx(2 / 3)
    assert (won["low"], won["high"]) == (0.5, 1.0)
    # Two repositories can be drawn in four ways.
    assert won["p"] == 2 / 2**2
