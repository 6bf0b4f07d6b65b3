from __future__ import annotations

from storage.schemas import Qrel
from tasks.evaluate.routing.measures import MEASURES, fold, folded_qrels, measure_rankings

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
