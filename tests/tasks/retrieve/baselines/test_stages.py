from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from storage.errors import WrongInput
from tasks.models.with_torch.reranker import PairScores
from tasks.retrieve.baselines.skillflow import (
    Aggregation,
    DenseStage,
    Gathering,
    RerankStage,
    TaskItself,
    aggregated,
)
from tasks.retrieve.baselines.stages import Stage, Staged, reciprocal_rank_fusion
from tests.support.models.routing_material import SKILLS
from tests.support.models.word_models import WordEncoder

IDS = [skill.doc_id for skill in SKILLS]
TASK = "Prune the roses and sharpen the kitchen knives"


class Written:
    """Queries as a model might have written them; notes what it was asked for."""

    def __init__(self, *queries: str) -> None:
        self.queries, self.asked = list(queries), list[tuple[int, str | None]]()

    def write(self, task: str, count: int, rules: str | None) -> list[str]:  # noqa: ARG002
        self.asked.append((count, rules))
        return self.queries


class SharedWords:
    """Scores a text by the words it shares with the query."""

    def score(self, query: str, texts: Sequence[str]) -> PairScores:
        words = set(query.lower().split())
        return np.array([len(words & set(text.lower().split())) for text in texts], dtype=np.float64)


def dense(writer: Written | TaskItself, **settings: object) -> DenseStage:
    encoder = WordEncoder()
    vectors = encoder.encode([skill.description for skill in SKILLS])
    return DenseStage(vectors, encoder, writer, **settings)  # type: ignore[arg-type]


def narrowed(stage: DenseStage | RerankStage, among: Sequence[int] = range(len(SKILLS))) -> list[str]:
    return [IDS[i] for i in stage.narrow(TASK, among)]


def test_a_union_takes_the_best_of_each_query_and_orders_them_by_their_own_cosine() -> None:
    writer = Written("Prunes roses", "Sharpens kitchen knives on a stone")
    assert narrowed(dense(writer, depth=1)) == ["home/knife", "home/roses"]
    assert writer.asked == [(5, None)]


def test_a_single_query_is_not_held_to_the_depth_of_a_union() -> None:
    assert len(narrowed(dense(TaskItself(), depth=1))) == len(SKILLS)


def test_the_dense_stage_keeps_as_many_as_it_is_told() -> None:
    assert len(narrowed(dense(TaskItself(), k=3))) == 3


@pytest.mark.parametrize(
    ("gathering", "first"), [("max", "home/knife"), ("mean", "home/roses"), ("rrf", "home/roses")]
)
def test_queries_are_gathered_over_all_skills_in_three_other_ways(gathering: Gathering, first: str) -> None:
    writer = Written("Sharpens kitchen knives on a stone", "roses in spring", "Prunes roses in a garden")
    assert narrowed(dense(writer, gathering=gathering))[0] == first


def test_only_what_the_stage_before_kept_is_looked_at() -> None:
    assert narrowed(dense(TaskItself()), [2, 1]) == ["home/tyre", "home/bees"]


@pytest.mark.parametrize(
    ("aggregation", "order"), [("mean", [1, 0, 2]), ("max", [0, 1, 2]), ("rrf", [1, 0, 2])]
)
def test_scores_of_several_queries_become_one(aggregation: Aggregation, order: list[int]) -> None:
    scores = np.array([[9.0, 0.0, 1.0], [5.0, 6.0, 2.0], [1.0, 1.0, 0.0]])
    assert np.argsort(-aggregated(scores, aggregation), kind="stable").tolist() == order


@given(arrays(np.float64, (12, 1), elements=st.floats(-5, 5)))
def test_of_one_query_all_aggregations_give_the_same_order(scores: np.ndarray) -> None:
    mean, most, rrf = (
        np.argsort(-aggregated(scores, kind), kind="stable").tolist() for kind in ("mean", "max", "rrf")
    )
    assert mean == most == rrf


def test_a_reranker_reads_name_description_and_body() -> None:
    stage = RerankStage("deep", SKILLS, SharedWords(), Written("wicks."), 1)
    assert narrowed(stage) == ["home/candles"]


def test_equal_scores_leave_candidates_as_they_stood() -> None:
    stage = RerankStage("shallow", SKILLS, SharedWords(), Written("submarine"), 3)
    assert narrowed(stage, [4, 0, 3, 1]) == ["home/knife", "home/sourdough", "home/roses"]


def test_a_reranker_asks_for_its_own_queries_by_its_own_prompt() -> None:
    writer = Written("glue", "rubber", "stone")
    stage = RerankStage("shallow", SKILLS, SharedWords(), writer, 2, 3, "max", "Ask for the material.")
    stage.narrow(TASK, range(len(SKILLS)))
    assert writer.asked == [(3, "Ask for the material.")]


def test_nothing_to_rerank_asks_nothing() -> None:
    writer = Written("glue")
    assert RerankStage("deep", SKILLS, SharedWords(), writer, 1).narrow(TASK, []) == []
    assert writer.asked == []


def test_each_stage_hands_on_fewer_and_its_time_is_its_own() -> None:
    ticks = iter(range(0, 1000, 2))
    stages: list[Stage] = [
        dense(TaskItself(), k=4),
        RerankStage("shallow", SKILLS, SharedWords(), TaskItself(), 2),
    ]
    first, second = Staged(SKILLS, stages, clock=lambda: float(next(ticks))).run(TASK)
    assert (first.stage, first.k, len(first.doc_ids), first.milliseconds) == ("dense", 4, 4, 2000)
    assert (second.stage, second.k, second.milliseconds) == ("shallow", 2, 2000)
    assert set(second.doc_ids) < set(first.doc_ids)


def test_stages_that_widen_again_and_no_stages_at_all_are_wrong() -> None:
    wide = RerankStage("deep", SKILLS, SharedWords(), TaskItself(), 9)
    with pytest.raises(WrongInput, match="dense 4, deep 9"):
        Staged(SKILLS, [dense(TaskItself(), k=4), wide])
    with pytest.raises(WrongInput, match="none"):
        Staged(SKILLS, [])


def test_a_blank_task_is_wrong() -> None:
    with pytest.raises(WrongInput, match="the task is blank"):
        Staged(SKILLS, [dense(TaskItself())]).run(" \n")


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
