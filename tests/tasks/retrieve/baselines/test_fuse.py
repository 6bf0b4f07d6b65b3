from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.baselines.stages import reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.sampled_from("abcdef"), unique=True))


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = reciprocal_rank_fusion([["a", "b"], ["b", "c"]])

    assert fused == [("b", 1 / 62 + 1 / 61), ("a", 1 / 61), ("c", 1 / 62)]


def test_a_small_k_favours_the_first_rank_and_a_large_one_agreement() -> None:
    rankings = [["a", "x", "b"], ["c", "d", "b"]]

    assert reciprocal_rank_fusion(rankings, k=0)[0][0] == "a"
    assert reciprocal_rank_fusion(rankings, k=60)[0][0] == "b"


def test_equal_scores_stand_in_order_of_id() -> None:
    assert [doc_id for doc_id, _ in reciprocal_rank_fusion([["b"], ["a"]])] == ["a", "b"]


def test_a_repeated_id_counts_where_it_first_stands() -> None:
    assert reciprocal_rank_fusion([["a", "a", "b"]]) == [("a", 1 / 61), ("b", 1 / 62)]


def test_nothing_fuses_to_nothing() -> None:
    assert reciprocal_rank_fusion([[], []]) == []


@given(RANKINGS)
def test_every_id_comes_back_once_and_the_order_of_the_rankings_does_not_matter(
    rankings: list[list[str]],
) -> None:
    fused = reciprocal_rank_fusion(rankings)

    assert sorted({doc_id for ranking in rankings for doc_id in ranking}) == sorted(i for i, _ in fused)
    assert pytest.approx(dict(fused)) == dict(reciprocal_rank_fusion(rankings[::-1]))


def test_a_negative_k_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        reciprocal_rank_fusion([["a"]], k=-1)
