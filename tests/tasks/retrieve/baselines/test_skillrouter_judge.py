from __future__ import annotations

import pytest

from storage.answers import Answers
from tasks.retrieve.baselines.skillrouter import JudgeStage
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import LlmServer
from tests.support.models.routing_material import SKILLS

TASK = "Treat the colony against mites"


def judge(server: LlmServer, answers: Answers, k: int = 3) -> JudgeStage:
    return JudgeStage(SKILLS, llm_of(server.url, answers), k=k, characters=40)


def test_the_candidate_that_is_named_comes_first_and_the_others_keep_their_order(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        assert judge(server, answers).narrow(TASK, [4, 2, 1]) == [1, 4, 2]

        task, *shown = server.asked[0].fragments
    assert task == {"task": TASK}
    assert [one["name"] for one in shown] == [SKILLS[i].name for i in (4, 2, 1)]
    assert all(len(one["text"]) < 100 for one in shown)


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
