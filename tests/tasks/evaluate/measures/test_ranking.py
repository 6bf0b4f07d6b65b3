from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.schemas import Qrel, ScoredDoc
from tasks.evaluate.measures.ranking import mean, per_query, ranked

QRELS = [
    Qrel("brew", "kettle", 2),
    Qrel("brew", "hops", 1),
    Qrel("brew", "cork", 0),
    Qrel("bake", "oven", 1),
    Qrel("mend", "needle", 0),
]
RUN = [
    ScoredDoc("brew", "cork", 0.9),
    ScoredDoc("brew", "hops", 0.8),
    ScoredDoc("brew", "tap", 0.7),
    ScoredDoc("brew", "kettle", 0.6),
    ScoredDoc("unasked", "oven", 1.0),
]
# hops (gain 1) stands at rank 2 and kettle (gain 2) at rank 4; the ideal order is kettle, hops.
IDEAL = 2 / math.log2(2) + 1 / math.log2(3)
FOUND = 1 / math.log2(3) + 2 / math.log2(5)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("hit@1", 0.0),
        ("hit@2", 1.0),
        ("recall@1", 0.0),
        ("recall@3", 0.5),
        ("recall@10", 1.0),
        ("mrr@1", 0.0),
        ("mrr@10", 0.5),
        ("fc@3", 0.0),
        ("fc@4", 1.0),
        ("ndcg@1", 0.0),
        ("ndcg@3", 1 / math.log2(3) / IDEAL),
        ("ndcg@10", FOUND / IDEAL),
    ],
)
def test_a_query_has_the_value_worked_out_by_hand(measure: str, expected: float) -> None:
    assert per_query(measure, QRELS, ranked(RUN))["brew"] == pytest.approx(expected)


@pytest.mark.parametrize("measure", ["hit@10", "recall@10", "mrr@10", "ndcg@10", "fc@10"])
def test_judged_queries_count_though_unanswered_or_without_relevant_documents(measure: str) -> None:
    values = per_query(measure, QRELS, ranked([*RUN, ScoredDoc("mend", "needle", 1.0)]))

    assert list(values) == ["brew", "bake", "mend"]
    assert values["bake"] == values["mend"] == 0.0
    assert mean(values) == pytest.approx(values["brew"] / 3)


def test_a_gain_stands_for_itself_and_is_cut_at_k_in_the_ideal_too() -> None:
    qrels = [Qrel("q", "a", 3), Qrel("q", "b", 3)]

    assert per_query("ndcg@1", qrels, {"q": ["a"]}) == {"q": 1.0}


def test_equal_scores_stand_in_order_of_id_and_repeats_count_once_where_best() -> None:
    run = [
        ScoredDoc("q", "b", 1.0),
        ScoredDoc("q", "a", 1.0),
        ScoredDoc("q", "c", 0.5),
        ScoredDoc("q", "c", 2),
    ]

    assert ranked(run) == {"q": ["c", "a", "b"]}


def test_a_negative_judgement_is_not_relevant() -> None:
    assert per_query("ndcg@5", [Qrel("q", "a", -1), Qrel("q", "b", 1)], {"q": ["a", "b"]}) == {
        "q": pytest.approx(1 / math.log2(3))
    }


def test_no_queries_have_the_mean_zero() -> None:
    assert mean(per_query("hit@1", [], {})) == 0.0


@given(st.permutations("abcdef"), st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(1, 6))
def test_measures_stay_in_bounds_and_agree_with_each_other(
    ranking: list[str], relevant: set[str], k: int
) -> None:
    qrels = [Qrel("q", doc_id, 1) for doc_id in sorted(relevant)]
    value = {
        name: per_query(f"{name}@{k}", qrels, {"q": ranking})["q"]
        for name in ("hit", "recall", "mrr", "ndcg", "fc")
    }

    assert all(0 <= v <= 1 + 1e-9 for v in value.values())
    assert value["fc"] == (value["recall"] == 1)
    assert value["hit"] == (value["recall"] > 0) == (value["mrr"] > 0) == (value["ndcg"] > 0)
    assert value["mrr"] <= value["hit"]


@pytest.mark.parametrize("measure", ["hit", "hit@0", "map@10", "hit@x", "hit@5@5"])
def test_an_unknown_measure_is_refused_with_the_known_ones(measure: str) -> None:
    with pytest.raises(WrongInput, match=r"hit@k, recall@k, mrr@k, ndcg@k, fc@k"):
        per_query(measure, QRELS, {})
