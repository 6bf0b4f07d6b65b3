from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from storage.answers import Answers
from tasks.models.with_torch.reranker import PairScores
from tasks.retrieve.baselines.skillrouter import FlatRerankStage, JudgeStage, RetrieveStage, flat_text
from tasks.retrieve.baselines.stages import Stage, Staged
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import LlmServer
from tests.support.models.routing_material import SKILLS
from tests.support.models.word_models import WordEncoder, WordTokenizer


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


TASK = "Treat the colony against mites"


def judge(server: LlmServer, answers: Answers, k: int = 3, characters: int = 40) -> JudgeStage:
    return JudgeStage(SKILLS, llm_of(server.url, answers), k=k, characters=characters)


def test_the_candidate_that_is_named_comes_first_and_the_others_keep_their_order(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        assert judge(server, answers).narrow(TASK, [4, 2, 1]) == [1, 4, 2]
        task, *shown = server.asked[0].fragments
    assert task == {"task": TASK}
    assert [one["name"] for one in shown] == [SKILLS[i].name for i in (4, 2, 1)]
    assert all(len(one["text"]) < 100 for one in shown)
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        assert judge(server, answers, characters=0).narrow(TASK, [4, 2, 1]) == [1, 4, 2]
        assert all(one.keys() == {"skill", "name", "description"} for one in server.asked[0].fragments[1:])


@pytest.mark.parametrize("answer", ['{"selected": []}', '{"selected": [9]}', "the third"])
def test_without_a_usable_answer_all_keep_their_order(answer: str, answers: Answers) -> None:
    with LlmServer(say=lambda _: answer) as server:
        stage = judge(server, answers)
        assert stage.narrow(TASK, [4, 2, 1]) == [4, 2, 1]


def test_no_question_is_asked_of_one_candidate(answers: Answers) -> None:
    with LlmServer() as server:
        assert judge(server, answers).narrow(TASK, [2]) == [2]
        assert judge(server, answers).narrow(TASK, []) == []
        assert server.requests == 0


def test_no_more_candidates_stay_than_are_wanted(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [2]}') as server:
        assert judge(server, answers, k=2).narrow(TASK, [4, 2, 1]) == [2, 4]
