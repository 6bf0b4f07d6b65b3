from __future__ import annotations

import itertools
from collections.abc import Mapping

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.schemas import Qrel
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.bench import RoutingAnswer, answer_negatives, measure_method, run_table, whole
from tasks.evaluate.routing.data import RoutingBench, RoutingQuery
from tasks.evaluate.routing.measures import (
    MEASURES,
    clusters_of,
    contest,
    fold,
    folded_qrels,
    measure_rankings,
    summarise_method,
    summarise_rejection,
)
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
    assert (found["fc@10"], found["stages"]) == (1.0, [])
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


TEA_SHOP = RoutingBench(
    [RoutingQuery(f"t{k}", f"tea {k}", repo="tea/shop") for k in range(4)]
    + [RoutingQuery(f"b{k}", f"bread {k}", repo="bread/shop") for k in range(2)],
    [Qrel(f"t{k}", f"tea/shop/{k}", 1) for k in range(4)]
    + [Qrel(f"b{k}", "bread/shop/0", 1) for k in range(2)],
    {"copy": "tea/shop/0"},
    [
        RoutingQuery("n0", "not tea 0", repo="tea/shop", not_doc_id="tea/shop/0"),
        RoutingQuery("n1", "not tea 1", repo="tea/shop", not_doc_id="tea/shop/1"),
        RoutingQuery("n2", "not tea 2", repo="tea/shop"),
    ],
)
OF_TEA = {
    "tea 0": RoutingAnswer(["tea/shop/0"], 0.9, 1.0),
    "tea 1": RoutingAnswer(["tea/shop/1"], 0.8, 1.0),
    "tea 2": RoutingAnswer(["tea/shop/2"], 0.7, 1.0),
    "tea 3": RoutingAnswer(["tea/shop/0"], 0.2, 0.0),
    "bread 0": RoutingAnswer(["bread/shop/0"], 0.9, 1.0),
    "bread 1": RoutingAnswer(["bread/shop/0"], 0.9, 1.0),
    "not tea 0": RoutingAnswer(["copy"], 0.3, 0.0),
    "not tea 1": RoutingAnswer(["tea/shop/2"], 0.1, 0.0),
    "not tea 2": RoutingAnswer(["tea/shop/3"], 0.75, 0.0),
}


def of_tea(answers: Mapping[str, RoutingAnswer]) -> tuple[pl.DataFrame, pl.DataFrame]:
    method = whole(lambda task, _k: answers[task])
    return measure_method(TEA_SHOP, "m", method), answer_negatives(TEA_SHOP, "m", method)


def test_scores_of_tasks_and_negatives_are_compared_and_so_within_a_repository() -> None:
    found = summarise_rejection(*of_tea(OF_TEA), recall=0.8)
    assert found is not None
    assert (found["queries"], found["negatives"], found["recall"]) == (6, 3, 0.8)
    score = found["score"]
    # Of 18 pairs all are right but 0.75 against 0.7 and 0.2, and 0.3 against 0.2.
    assert score["auroc"] == pytest.approx(15 / 18)
    assert (score["threshold"], score["false_route_rate"]) == (0.7, pytest.approx(1 / 3))
    assert score["interval_over"] == "repositories"
    assert list(score["by_repo"]) == ["tea/shop"]
    tea = score["by_repo"]["tea/shop"]
    assert (tea["queries"], tea["negatives"], tea["interval_over"]) == (4, 3, "skills")
    assert tea["auroc"] == pytest.approx(9 / 12)
    # A negative is excluded, be it by a copy; the third does not say what it is not for.
    assert found["excluded@1"] == 0.5
    # A score within 0 and 1 is held against how often the first skill is right.
    assert found["fit"]["ece"] == 0.0
    assert sum(row["n"] for row in found["fit"]["reliability"]) == 9
    # Each bin holds one answer: right ones fall short of 1, all others exceed 0.
    gaps = [0.1, 0.2, 0.3, 0.2, 0.1, 0.1, 0.3, 0.1, 0.75]
    assert found["score"]["ece"] == pytest.approx(sum(gaps) / 9)


def test_other_scores_are_no_shares_and_have_no_calibration() -> None:
    standardised = {task: answer._replace(score=10 * (answer.score or 0)) for task, answer in OF_TEA.items()}
    found = summarise_rejection(*of_tea(standardised))
    assert found is not None
    assert (found["score"]["ece"], found["score"]["reliability"]) == (None, None)
    assert found["score"]["auroc"] == pytest.approx(15 / 18)


def test_a_number_that_a_method_or_one_negative_lacks_is_not_measured() -> None:
    bare = of_tea({task: RoutingAnswer(answer.doc_ids) for task, answer in OF_TEA.items()})
    found = summarise_rejection(*bare)
    assert found is not None
    assert (found["score"], found["fit"], found["excluded@1"]) == (None, None, 0.5)
    found = summarise_rejection(*of_tea({**OF_TEA, "not tea 2": RoutingAnswer([], None, 0.0)}))
    assert found is not None
    assert found["score"] is None
    assert found["fit"]["negatives"] == 3
    assert summarise_rejection(bare[0], bare[1].clear()) is None


QRELS = [Qrel("q", "a", 3), Qrel("q", "b", 3), Qrel("q", "never", 0), Qrel("other", "z", 1)]


def measured(*ranking: str) -> dict[str, float]:
    row = measure_rankings(QRELS, {"q": ranking}).to_dicts()[0]
    return {name: round(row[name], 4) for name in MEASURES}


def test_every_measure_is_as_worked_out_by_hand() -> None:
    found = measured("x", "a", "never", "y", "b")
    assert found["hit@1"] == 0
    assert found["hit@10"] == 1
    assert found["mrr@10"] == found["mrr"] == 0.5
    assert (found["recall@1"], found["recall@5"], found["recall@1000"]) == (0, 1, 1)
    assert (found["precision@1"], found["precision@5"], found["precision@10"]) == (0, 0.4, 0.2)
    assert found["ndcg@10"] == round((1 / 1.58496 + 1 / 2.58496) / (1 + 1 / 1.58496), 4)
    assert found["fc@10"] == 1


def test_a_copy_that_is_judged_counts_as_its_original_where_copies_are_folded() -> None:
    copies = {"twin": "a", "other-twin": "c"}
    judged = [Qrel("q", "twin", 1), Qrel("q", "a", 3), Qrel("q", "other-twin", 2), Qrel("p", "twin", 1)]
    folded = folded_qrels(judged, copies)
    assert folded == [Qrel("q", "a", 3), Qrel("q", "c", 2), Qrel("p", "a", 1)]
    assert folded_qrels(judged, {}) == judged
    row = measure_rankings(folded, {"q": fold(["other-twin", "twin"], copies)}).to_dicts()[0]
    assert (row["hit@1"], row["recall@5"], row["fc@10"]) == (1, 1, 1)


def test_what_stands_below_a_cut_or_the_depth_does_not_count() -> None:
    found = measured(*[f"x{i}" for i in range(10)], "a")
    assert found["mrr@10"] == found["ndcg@10"] == found["hit@10"] == 0
    assert found["mrr"] == round(1 / 11, 4)
    assert found["recall@20"] == 0.5
    assert measured("a", *[f"x{i}" for i in range(9)], "b")["fc@10"] == 0
    assert measured("a", *[f"x{i}" for i in range(8)], "b")["fc@10"] == 1
    assert measured(*[f"x{i}" for i in range(1000)], "a")["mrr"] == 0
    assert set(measured().values()) == {0.0}


def test_a_copy_stands_as_its_original_and_repeats_fall_away() -> None:
    assert fold(["copy", "x", "a", "copy2", "x"], {"copy": "a", "copy2": "b"}) == ["a", "x", "b"]
