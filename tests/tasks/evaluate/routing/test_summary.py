from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from storage.schemas import Qrel
from tasks.evaluate.routing.bench import RoutingAnswer, answer_negatives, measure_method, whole
from tasks.evaluate.routing.data import RoutingBench, RoutingQuery
from tasks.evaluate.routing.measures import MEASURES, fold, folded_qrels, measure_rankings
from tasks.evaluate.routing.summary import summarise_rejection

BENCH = RoutingBench(
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
ANSWERS = {
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


def rows(answers: Mapping[str, RoutingAnswer]) -> tuple[pl.DataFrame, pl.DataFrame]:
    method = whole(lambda task, _k: answers[task])
    return measure_method(BENCH, "m", method), answer_negatives(BENCH, "m", method)


def test_scores_of_tasks_and_negatives_are_compared_and_so_within_a_repository() -> None:
    found = summarise_rejection(*rows(ANSWERS), recall=0.8)
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


def test_a_negative_is_excluded_if_the_skill_that_it_is_not_for_is_first_be_it_a_copy() -> None:
    found = summarise_rejection(*rows(ANSWERS))
    assert found is not None
    # The third does not say what it is not for.
    assert found["excluded@1"] == 0.5


def test_a_score_within_0_and_1_is_held_against_how_often_the_first_skill_is_right() -> None:
    found = summarise_rejection(*rows(ANSWERS))
    assert found is not None
    assert found["fit"]["ece"] == 0.0
    assert sum(row["n"] for row in found["fit"]["reliability"]) == 9
    # Each bin holds one answer: right ones fall short of 1, all others exceed 0.
    gaps = [0.1, 0.2, 0.3, 0.2, 0.1, 0.1, 0.3, 0.1, 0.75]
    assert found["score"]["ece"] == pytest.approx(sum(gaps) / 9)


def test_other_scores_are_no_shares_and_have_no_calibration() -> None:
    standardised = {task: answer._replace(score=10 * (answer.score or 0)) for task, answer in ANSWERS.items()}
    found = summarise_rejection(*rows(standardised))
    assert found is not None
    assert (found["score"]["ece"], found["score"]["reliability"]) == (None, None)
    assert found["score"]["auroc"] == pytest.approx(15 / 18)


def test_a_number_that_a_method_does_not_give_is_not_measured() -> None:
    found = summarise_rejection(
        *rows({task: RoutingAnswer(answer.doc_ids) for task, answer in ANSWERS.items()})
    )
    assert found is not None
    assert (found["score"], found["fit"], found["excluded@1"]) == (None, None, 0.5)


def test_a_number_that_one_negative_lacks_is_not_measured() -> None:
    found = summarise_rejection(*rows({**ANSWERS, "not tea 2": RoutingAnswer([], None, 0.0)}))
    assert found is not None
    assert found["score"] is None
    assert found["fit"]["negatives"] == 3


def test_without_negatives_there_is_nothing_to_reject() -> None:
    tasks, negatives = rows(ANSWERS)
    assert summarise_rejection(tasks, negatives.clear()) is None


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


def test_a_first_hit_below_the_tenth_place_counts_for_no_measure_at_ten() -> None:
    found = measured(*[f"x{i}" for i in range(10)], "a")
    assert found["mrr@10"] == found["ndcg@10"] == found["hit@10"] == 0
    assert found["mrr"] == round(1 / 11, 4)
    assert found["recall@20"] == 0.5


def test_full_coverage_wants_every_relevant_skill_among_the_first_ten() -> None:
    assert measured("a", *[f"x{i}" for i in range(9)], "b")["fc@10"] == 0
    assert measured("a", *[f"x{i}" for i in range(8)], "b")["fc@10"] == 1


def test_an_empty_ranking_is_zero_throughout() -> None:
    assert set(measured().values()) == {0.0}


def test_what_stands_below_the_depth_does_not_count() -> None:
    assert measured(*[f"x{i}" for i in range(1000)], "a")["mrr"] == 0


def test_a_copy_stands_as_its_original_and_repeats_fall_away() -> None:
    assert fold(["copy", "x", "a", "copy2", "x"], {"copy": "a", "copy2": "b"}) == ["a", "x", "b"]
