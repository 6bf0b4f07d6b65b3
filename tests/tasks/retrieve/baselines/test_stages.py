from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.answers import Answers
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
from tasks.retrieve.baselines.skillrouter import FlatRerankStage, JudgeStage, RetrieveStage, flat_text
from tasks.retrieve.baselines.stages import Stage, Staged, reciprocal_rank_fusion
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import LlmServer
from tests.support.models.routing_material import SKILLS
from tests.support.models.word_models import WordEncoder, WordTokenizer

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


def test_the_dense_stage_unites_the_best_of_each_query_and_takes_one_query_whole() -> None:
    # A union takes the best of each query and orders them by their own cosine.
    writer = Written("Prunes roses", "Sharpens kitchen knives on a stone")
    assert narrowed(dense(writer, depth=1)) == ["home/knife", "home/roses"]
    assert writer.asked == [(5, None)]
    # A single query is not held to the depth of a union.
    assert len(narrowed(dense(TaskItself(), depth=1))) == len(SKILLS)
    # Only what the stage before kept is looked at.
    assert narrowed(dense(TaskItself()), [2, 1]) == ["home/tyre", "home/bees"]


@pytest.mark.parametrize(
    ("gathering", "first"), [("max", "home/knife"), ("mean", "home/roses"), ("rrf", "home/roses")]
)
def test_queries_are_gathered_over_all_skills_in_three_other_ways(gathering: Gathering, first: str) -> None:
    writer = Written("Sharpens kitchen knives on a stone", "roses in spring", "Prunes roses in a garden")
    assert narrowed(dense(writer, gathering=gathering))[0] == first


@pytest.mark.parametrize(
    ("aggregation", "order"), [("mean", [1, 0, 2]), ("max", [0, 1, 2]), ("rrf", [1, 0, 2])]
)
def test_scores_of_several_queries_become_one(aggregation: Aggregation, order: list[int]) -> None:
    scores = np.array([[9.0, 0.0, 1.0], [5.0, 6.0, 2.0], [1.0, 1.0, 0.0]])
    assert np.argsort(-aggregated(scores, aggregation), kind="stable").tolist() == order


def test_a_reranker_reads_whole_skills_and_leaves_equal_ones_as_they_stood() -> None:
    # A reranker reads name description and body.
    stage = RerankStage("deep", SKILLS, SharedWords(), Written("wicks."), 1)
    assert narrowed(stage) == ["home/candles"]
    # Equal scores leave candidates as they stood.
    stage = RerankStage("shallow", SKILLS, SharedWords(), Written("submarine"), 3)
    assert narrowed(stage, [4, 0, 3, 1]) == ["home/knife", "home/sourdough", "home/roses"]
    # A reranker asks for its own queries by its own prompt.
    writer = Written("glue", "rubber", "stone")
    stage = RerankStage("shallow", SKILLS, SharedWords(), writer, 2, 3, "max", "Ask for the material.")
    stage.narrow(TASK, range(len(SKILLS)))
    assert writer.asked == [(3, "Ask for the material.")]
    # Nothing to rerank asks nothing.
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


def test_stages_that_widen_again_no_stages_and_a_blank_task_are_wrong() -> None:
    # Stages that widen again and no stages at all are wrong.
    wide = RerankStage("deep", SKILLS, SharedWords(), TaskItself(), 9)
    with pytest.raises(WrongInput, match="dense 4, deep 9"):
        Staged(SKILLS, [dense(TaskItself(), k=4), wide])
    with pytest.raises(WrongInput, match="none"):
        Staged(SKILLS, [])
    # A blank task is wrong.
    with pytest.raises(WrongInput, match="the task is blank"):
        Staged(SKILLS, [dense(TaskItself())]).run(" \n")


RANKINGS = st.lists(st.lists(st.sampled_from("abcdef"), unique=True))


def test_scores_are_sums_of_reciprocal_ranks_ties_go_by_id_and_an_id_counts_once_a_ranking() -> None:
    fused = reciprocal_rank_fusion([["a", "b"], ["b", "c"]])
    assert fused == [("b", 1 / 62 + 1 / 61), ("a", 1 / 61), ("c", 1 / 62)]
    assert [doc_id for doc_id, _ in reciprocal_rank_fusion([["b"], ["a"]])] == ["a", "b"]
    assert reciprocal_rank_fusion([["a", "a", "b"], []]) == [("a", 1 / 61), ("b", 1 / 62)]


@given(RANKINGS)
def test_every_id_comes_back_once_and_the_order_of_the_rankings_does_not_matter(
    rankings: list[list[str]],
) -> None:
    fused = reciprocal_rank_fusion(rankings)
    assert sorted({doc_id for ranking in rankings for doc_id in ranking}) == sorted(i for i, _ in fused)
    assert pytest.approx(dict(fused)) == dict(reciprocal_rank_fusion(rankings[::-1]))


class Longest:
    """Prefers long texts; notes what it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def score(self, query: str, texts: Sequence[str]) -> PairScores:  # noqa: ARG002
        self.texts += texts
        return np.array([len(text) for text in texts], dtype=np.float64)


def test_description_and_body_are_cut_each_at_its_own_number_of_tokens() -> None:
    skill = Skill("a/b", "a name of its own", "one two three four", "five six seven eight")
    assert flat_text(skill, (2, 3), WordTokenizer()) == "a name of its own | one two | five six seven"
    assert flat_text(skill, (9, 9), WordTokenizer()).endswith("| one two three four | five six seven eight")
    assert flat_text(skill, (2, 0), WordTokenizer()) == "a name of its own | one two"
    assert flat_text(skill, (0, 3), WordTokenizer()) == "a name of its own | five six seven"


def test_a_task_is_retrieved_by_the_whole_text_and_reranked_in_the_same_form() -> None:
    encoder, scorer = WordEncoder(), Longest()
    vectors = encoder.encode([flat_text(skill, (300, 2500), WordTokenizer()) for skill in SKILLS])
    stages: list[Stage] = [
        RetrieveStage(vectors, encoder, k=2),
        FlatRerankStage(SKILLS, scorer, WordTokenizer(), k=2, limits=(1, 3)),
    ]
    retrieved, reranked = Staged(SKILLS, stages).run("roughen the rubber, glue a patch on")
    assert list(retrieved.doc_ids) == ["home/tyre", "copy/tyre"]
    assert list(reranked.doc_ids) == ["copy/tyre", "home/tyre"]
    assert scorer.texts == ["tyre | Mends | # Tyre\n\nFind", "tyre-repair | Mends | # Tyre\n\nFind"]


def test_the_body_decides_where_name_and_description_say_nothing() -> None:
    encoder = WordEncoder()
    vectors = encoder.encode([flat_text(skill, (300, 2500), WordTokenizer()) for skill in SKILLS])
    ranked = RetrieveStage(vectors, encoder).narrow("dip the wicks", range(len(SKILLS)))
    assert SKILLS[ranked[0]].doc_id == "home/candles"


COLONY = "Treat the colony against mites"


def judge(server: LlmServer, answers: Answers, k: int = 3, characters: int = 40) -> JudgeStage:
    return JudgeStage(SKILLS, llm_of(server.url, answers), k=k, characters=characters)


def test_the_candidate_that_is_named_comes_first_and_the_others_keep_their_order(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        assert judge(server, answers).narrow(COLONY, [4, 2, 1]) == [1, 4, 2]
        task, *shown = server.asked[0].fragments
    assert task == {"task": COLONY}
    assert [one["name"] for one in shown] == [SKILLS[i].name for i in (4, 2, 1)]
    assert all(len(one["text"]) < 100 for one in shown)
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        assert judge(server, answers, characters=0).narrow(COLONY, [4, 2, 1]) == [1, 4, 2]
        assert all(one.keys() == {"skill", "name", "description"} for one in server.asked[0].fragments[1:])


@pytest.mark.parametrize("answer", ['{"selected": []}', '{"selected": [9]}', "the third"])
def test_without_a_usable_answer_all_keep_their_order(answer: str, answers: Answers) -> None:
    with LlmServer(say=lambda _: answer) as server:
        stage = judge(server, answers)
        assert stage.narrow(COLONY, [4, 2, 1]) == [4, 2, 1]


def test_no_question_is_asked_of_one_candidate(answers: Answers) -> None:
    with LlmServer() as server:
        assert judge(server, answers).narrow(COLONY, [2]) == [2]
        assert judge(server, answers).narrow(COLONY, []) == []
        assert server.requests == 0


def test_no_more_candidates_stay_than_are_wanted(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [2]}') as server:
        assert judge(server, answers, k=2).narrow(COLONY, [4, 2, 1]) == [2, 4]
