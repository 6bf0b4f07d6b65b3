from __future__ import annotations

import json

import pytest

from storage.answers import Answers
from tasks.models.llm.ask import Llm
from tasks.models.llm.budget import Ceiling, Ledger, Prices
from tasks.models.llm.errors import LlmDenied
from tasks.models.llm.question import Sampling
from tasks.retrieve.baselines.skillflow import LlmQueries, SelectStage
from tests.support.llm import llm_asking
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import say, temperatures
from tests.support.models.routing_material import SKILLS

TASK = "Treat the colony against mites"
EVERY = range(len(SKILLS))


def llm_of(server: LlmServer, answers: Answers, ledger: Ledger | None = None) -> Llm:
    return llm_asking.llm_of(server.url, answers, ledger, sampling=Sampling(temperature=0.1))


def several(asked: Asked) -> bool:
    return "queries" in asked.prompt


def test_one_query_is_asked_for_in_plain_words(answers: Answers) -> None:
    with LlmServer(say=lambda _: ' "treating mites" \n') as server:
        assert LlmQueries(llm_of(server, answers)).write(TASK, 1, None) == ["treating mites"]
        assert server.asked[0].fragments == [{"task": TASK}]


@pytest.mark.parametrize("before", ["<think>\nMites, in a hive.\n</think>\n\n", "a thought</think>"])
def test_what_a_model_thinks_is_no_part_of_its_query(before: str, answers: Answers) -> None:
    with LlmServer(say=lambda _: f"{before}treating mites") as server:
        assert LlmQueries(llm_of(server, answers)).write(TASK, 1, None) == ["treating mites"]


def test_several_queries_are_one_question(answers: Answers) -> None:
    with LlmServer(say=say) as server:
        queries = LlmQueries(llm_of(server, answers)).write(TASK, 5, None)
        assert len(set(queries)) == 5
        assert server.requests == 1


@pytest.mark.parametrize("fault", ["prose", "fenced"])
def test_a_list_is_found_whatever_stands_around_it(fault: str, answers: Answers) -> None:
    with LlmServer(lambda _: fault, say=lambda _: json.dumps({"queries": ["a hive", "mites"]})) as server:
        assert LlmQueries(llm_of(server, answers)).write(TASK, 2, None) == ["a hive", "mites"]


def test_a_malformed_list_is_asked_for_twice_more_each_time_hotter(answers: Answers) -> None:
    with LlmServer(lambda _: "no-json" if server.requests < 2 else None, say=say) as server:
        llm = llm_of(server, answers)
        assert len(LlmQueries(llm).write(TASK, 5, None)) == 5
        assert temperatures(server.asked) == [0.1, 0.4, 0.7]
        assert llm.fallbacks == {}


@pytest.mark.parametrize("answer", ["[1, 2, 3]", '["one"]', '["a", "", "b"]', '{"a": "b", "c": "d"}', "five"])
def test_what_is_no_list_of_enough_queries_is_malformed(answer: str, answers: Answers) -> None:
    with LlmServer(say=lambda a: answer if several(a) else f"query {server.requests}") as server:
        llm = llm_of(server, answers)
        assert LlmQueries(llm).write(TASK, 3, None) == ["query 4", "query 5", "query 6"]
        assert llm.fallbacks == {"flow-queries-1: malformed": 1}


def test_without_a_list_single_queries_are_asked_for_each_hotter_than_the_last(answers: Answers) -> None:
    with LlmServer(lambda a: "no-json" if several(a) else None, say=lambda _: "mites in the hive") as server:
        queries = LlmQueries(llm_of(server, answers)).write(TASK, 3, None)
        assert queries == ["mites in the hive"]
        assert temperatures(server.asked) == [0.1, 0.4, 0.7, 0.1, 0.4, 0.7]


@pytest.mark.parametrize("answer", ["", '""', "mites " * 200])
def test_without_any_query_the_task_is_the_query(answer: str, answers: Answers) -> None:
    with LlmServer(say=lambda _: answer) as server:
        llm = llm_of(server, answers)
        assert LlmQueries(llm).write(TASK, 1, None) == [TASK]
        assert llm.fallbacks == {"flow-query-1: malformed": 1}


@pytest.mark.parametrize(("fault", "reason"), [("refused", "refused"), ("500", "unavailable")])
def test_a_server_that_does_not_answer_is_gone_without_and_counted(
    fault: str, reason: str, answers: Answers
) -> None:
    with LlmServer(lambda _: fault, say=say) as server:
        llm = llm_of(server, answers)
        assert LlmQueries(llm).write(TASK, 1, None) == [TASK]
        assert llm.fallbacks == {f"flow-query-1: {reason}": 1}


def test_a_spent_budget_is_gone_without_and_counted(answers: Answers) -> None:
    with LlmServer(say=say) as server:
        llm = llm_of(server, answers, Ledger(Prices(), Ceiling(tokens=1)))
        assert LlmQueries(llm).write(TASK, 1, None) == [TASK]
        assert (server.requests, llm.fallbacks) == (0, {"flow-query-1: budget": 1})


def test_a_wrong_key_ends_it(answers: Answers) -> None:
    with LlmServer(lambda _: "401") as server, pytest.raises(LlmDenied):
        LlmQueries(llm_of(server, answers)).write(TASK, 1, None)


def test_another_prompt_takes_the_place_of_the_usual_one(answers: Answers) -> None:
    with LlmServer(say=say) as server:
        LlmQueries(llm_of(server, answers)).write(TASK, 1, "Name the animal.")
        LlmQueries(llm_of(server, answers)).write(TASK, 4, "Name four animals.")
        assert [a.body["messages"][0]["content"] for a in server.asked] == [
            "Name the animal.", "Name four animals.",
        ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 4])
def test_one_prompt_asks_for_any_number_of_queries_as_a_list(answers: Answers, count: int) -> None:
    with LlmServer(say=lambda _: json.dumps([f"query {n}" for n in range(count)])) as server:
        writer = LlmQueries(llm_of(server, answers), listed=True)
        found = writer.write(TASK, count, "Name {num_queries} animals.")
        assert [a.body["messages"][0]["content"] for a in server.asked] == [f"Name {count} animals."]
    assert found == [f"query {n}" for n in range(count)]


def test_what_was_answered_once_is_not_asked_again(answers: Answers) -> None:
    with LlmServer(lambda _: "no-json" if server.requests == 1 else None, say=say) as server:
        first = LlmQueries(llm_of(server, answers)).write(TASK, 5, None)
        asked = server.requests
        again = LlmQueries(llm_of(server, answers)).write(TASK, 5, None)
        assert (first, server.requests) == (again, asked)


def test_relevant_skills_are_kept_in_the_order_in_which_they_stood(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [3, 1]}') as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, [4, 2, 1]) == [4, 1]
        task, *shown = server.asked[0].fragments
        assert task == {"task": TASK}
        assert [s["name"] for s in shown] == ["knife", "tyre", "bees"]
        assert shown[2]["text"] == SKILLS[1].body


def test_skills_that_do_not_fit_one_question_are_asked_about_by_halves(answers: Answers) -> None:
    with LlmServer(say=lambda asked: json.dumps({"selected": [len(asked.fragments) - 1]})) as server:
        server.fault = lambda asked: "overflow" if len(asked.fragments) > 3 else None
        llm = llm_of(server, answers)
        assert SelectStage(SKILLS, llm).narrow(TASK, [4, 2, 1]) == [2, 1]
        assert (server.requests, llm.fallbacks) == (3, {})


def test_nothing_may_be_relevant(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": []}') as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, EVERY) == []


def test_no_more_are_kept_than_wanted(answers: Answers) -> None:
    with LlmServer(say=lambda _: json.dumps({"selected": [1, 2, 3, 4, 5, 6]})) as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, EVERY) == [0, 1, 2, 3, 4]


def test_what_is_relevant_must_be_specific_where_that_is_asked_for(answers: Answers) -> None:
    def choose(asked: Asked) -> str:
        names = [fragment["name"] for fragment in asked.fragments[1:]]
        return '{"selected": [1, 2, 3]}' if len(names) > 1 else f'{{"selected": {[1] * (names != ["tyre"])}}}'

    with LlmServer(say=choose) as server:
        stage = SelectStage(SKILLS, llm_of(server, answers), specific=True)
        assert stage.narrow(TASK, [4, 2, 1]) == [4, 1]
        assert server.requests == 4


@pytest.mark.parametrize(
    "answer", ["all of them", '{"selected": "1"}', '{"selected": [9]}', '{"chosen": [1]}']
)
def test_without_a_selection_candidates_stay_as_they_stood_and_it_is_counted(
    answer: str, answers: Answers
) -> None:
    with LlmServer(say=lambda _: answer) as server:
        llm = llm_of(server, answers)
        assert SelectStage(SKILLS, llm, k=2).narrow(TASK, [4, 2, 1]) == [4, 2]
        assert llm.fallbacks == {"flow-relevant-1: malformed": 1}
        assert temperatures(server.asked) == [0.1, 0.4, 0.7]


def test_an_unclear_word_on_specificity_leaves_a_skill_in(answers: Answers) -> None:
    def choose(asked: Asked) -> str:
        return '{"selected": [2]}' if len(asked.fragments) > 2 else "perhaps"

    with LlmServer(say=choose) as server:
        llm = llm_of(server, answers)
        assert SelectStage(SKILLS, llm, specific=True).narrow(TASK, [4, 2, 1]) == [2]
        assert llm.fallbacks == {"flow-specific-1: malformed": 1}


def test_a_long_skill_is_shown_by_its_ends(answers: Answers) -> None:
    with LlmServer(say=lambda _: '{"selected": [1]}') as server:
        SelectStage(SKILLS, llm_of(server, answers), characters=30).narrow(TASK, [1, 2])
        assert "characters left out" in server.asked[0].fragments[1]["text"]


def test_no_candidates_are_not_asked_about(answers: Answers) -> None:
    with LlmServer(say=say) as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, []) == []
        assert server.requests == 0
