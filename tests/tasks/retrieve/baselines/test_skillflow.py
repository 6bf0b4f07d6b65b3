"""What an LLM does for published methods: it writes queries, selects skills, reranks the nodes of a page."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from storage.answers import Answers
from storage.errors import WrongInput
from tasks.models.llm.ask import Llm
from tasks.models.llm.budget import Ledger
from tasks.models.llm.errors import LlmDenied
from tasks.models.llm.question import Sampling
from tasks.retrieve.baselines.llm_page_rerank import LlmReranker
from tasks.retrieve.baselines.skillflow import LlmQueries, SelectStage
from tasks.retrieve.page import page
from tasks.retrieve.paging.types import Page
from tests.support.llm import llm_asking
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import say, temperatures
from tests.support.models.routing_material import SKILLS
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import FACETS_READY as READY

TASK = "Treat the colony against mites"


EVERY = range(len(SKILLS))


def llm_of(server: LlmServer, answers: Answers, ledger: Ledger | None = None) -> Llm:
    return llm_asking.llm_of(server.url, answers, ledger, sampling=Sampling(temperature=0.1))


def several(asked: Asked) -> bool:
    return "queries" in asked.prompt


def test_one_query_is_asked_for_in_plain_words_and_several_as_one_list(answers: Answers) -> None:
    # One query is asked for in plain words.
    with LlmServer(say=lambda _: ' "treating mites" \n') as server:
        assert LlmQueries(llm_of(server, answers)).write(TASK, 1, None) == ["treating mites"]
        assert server.asked[0].fragments == [{"task": TASK}]
    # Several queries are one question.
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


def test_selected_skills_are_kept_in_their_order_none_or_no_more_than_wanted(answers: Answers) -> None:
    # Relevant skills are kept in the order in which they stood.
    with LlmServer(say=lambda _: '{"selected": [3, 1]}') as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, [4, 2, 1]) == [4, 1]
        task, *shown = server.asked[0].fragments
        assert task == {"task": TASK}
        assert [s["name"] for s in shown] == ["knife", "tyre", "bees"]
        assert shown[2]["text"] == SKILLS[1].body
    # Nothing may be relevant.
    with LlmServer(say=lambda _: '{"selected": []}') as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, EVERY) == []
    # No more are kept than wanted.
    with LlmServer(say=lambda _: json.dumps({"selected": [1, 2, 3, 4, 5, 6]})) as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow("Mend it.", EVERY) == [0, 1, 2, 3, 4]
    # A long skill is shown by its ends.
    with LlmServer(say=lambda _: '{"selected": [1]}') as server:
        SelectStage(SKILLS, llm_of(server, answers), characters=30).narrow(TASK, [1, 2])
        assert "characters left out" in server.asked[0].fragments[1]["text"]
    # No candidates are not asked about.
    with LlmServer(say=say) as server:
        assert SelectStage(SKILLS, llm_of(server, answers)).narrow(TASK, []) == []
        assert server.requests == 0


def test_skills_that_do_not_fit_one_question_are_asked_about_by_halves(answers: Answers) -> None:
    with LlmServer(say=lambda asked: json.dumps({"selected": [len(asked.fragments) - 1]})) as server:
        server.fault = lambda asked: "overflow" if len(asked.fragments) > 3 else None
        llm = llm_of(server, answers)
        assert SelectStage(SKILLS, llm).narrow(TASK, [4, 2, 1]) == [2, 1]
        assert (server.requests, llm.fallbacks) == (3, {})


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


QUERY = "scrub the copper pan with lemon"


def reranker(server: LlmServer, answers: Answers, **settings: float) -> LlmReranker:
    return LlmReranker(llm_asking.llm_of(server.url, answers), **settings)  # type: ignore[arg-type]


def wants(word: str, asked: Asked) -> str:
    """Take the nodes that hold a word."""
    return json.dumps({"needed": [f["node"] for f in asked.fragments[1:] if word in f["text"]]})


def read(asking: LlmReranker | None, query: str = QUERY, budget: float | None = 30) -> Page:
    encoder, tokenizer = WordEncoder(), WordTokenizer()
    return page(READY, query, encoder=encoder, tokenizer=tokenizer, budget=budget, reranker=asking)


def test_what_the_model_takes_comes_onto_the_page_and_what_it_leaves_makes_room(answers: Answers) -> None:
    assert "knives" not in read(None, budget=20).context
    with LlmServer(say=lambda asked: wants("knives", asked)) as server:
        answer = read(reranker(server, answers, accuracy=0.99), budget=20)
        assert "knives" in answer.context
        assert answer.reranked is True
        assert answer.tokens <= 20
        (knives,) = [node for node, _ in answer.nodes if "knives" in node.text]
        assert answer.why[knives.node_id]["reranker"] == pytest.approx(math.log(99), abs=1e-3)


def test_the_model_is_shown_the_request_and_the_best_nodes_in_their_order(answers: Answers) -> None:
    with LlmServer(say=lambda asked: wants("", asked)) as server:
        read(reranker(server, answers, nodes=3, characters=40))
        request, *shown = server.asked[0].fragments
    assert request == {"request": QUERY}
    assert [one["node"] for one in shown] == [1, 2, 3]
    places = [READY.body.index(one["text"][:20]) for one in shown]
    assert places == sorted(places)
    assert any("copper" in one["text"] and one["headings"].endswith("Cleaning") for one in shown)


def test_nodes_that_do_not_fit_one_question_are_asked_about_by_halves(answers: Answers) -> None:
    with LlmServer(say=lambda asked: wants("knives", asked)) as server:
        whole = read(reranker(server, answers))
        server.fault = lambda asked: "overflow" if len(asked.fragments) > 4 else None
        asking = reranker(server, answers, characters=200)
        assert read(asking) == whole
        assert all(asked.fragments[0] == {"request": QUERY} for asked in server.asked)
        assert asking.llm.fallbacks == {}
        server.fault = lambda asked: "overflow" if len(asked.fragments) > 1 else None
        asking = reranker(server, answers, characters=210)
        assert read(asking).reranked is False
    assert asking.llm.fallbacks == {"page-needed-1: refused": 1}


@pytest.mark.parametrize("said", ['{"needed": [0]}', '{"needed": ["1"]}', "all of them", '{"selected": 1}'])
def test_an_answer_that_cannot_be_used_leaves_the_scores_and_is_counted(said: str, answers: Answers) -> None:
    with LlmServer(say=lambda _: said) as server:
        asking = reranker(server, answers)
        answer = read(asking)
    assert replace(answer, reranked=None) == read(None)
    assert answer.reranked is False
    assert asking.llm.fallbacks == {"page-needed-1: malformed": 1}


def test_nothing_is_asked_where_nothing_is_to_be_chosen(answers: Answers) -> None:
    bare = replace(READY, body="One sentence.", nodes=[], ready=None, vectors=None, n_tokens=3)
    encoder, tokenizer = WordEncoder(), WordTokenizer()
    with LlmServer(say=lambda asked: wants("pan", asked)) as server:
        asking = reranker(server, answers)
        whole = read(asking, budget=1.0)
        alone = page(bare, QUERY, encoder=encoder, tokenizer=tokenizer, reranker=asking)
        assert server.requests == 0
    assert (whole.context, whole.reranked) == (READY.body, False)
    assert (alone.context, alone.reranked) == (bare.body, False)


def test_taking_none_or_all_changes_no_order(answers: Answers) -> None:
    nodes, scores = READY.nodes, np.linspace(0, 1, len(READY.nodes))
    for taken in ([], list(range(1, len(nodes) + 1))):
        said = json.dumps({"needed": taken})
        for shown in (3, 80) if not taken else (80,):
            with LlmServer(say=lambda _, said=said: said) as server:  # type: ignore[misc]
                asking = reranker(server, answers, nodes=shown)
                found = asking.shifts("soup", nodes, f"{QUERY} {said}", scores)
            assert found is not None
            assert found == pytest.approx(math.log(4) if taken else -math.log(4))


def test_who_names_all_of_many_nodes_has_not_chosen(answers: Answers) -> None:
    for many, chosen in ((19, True), (20, False)):
        nodes = [replace(READY.nodes[0], node_id=f"soup:{n}", text=f"Rinse pan {n}.") for n in range(many)]
        with LlmServer(say=lambda asked: wants("pan", asked)) as server:
            asking = reranker(server, answers)
            found = asking.shifts("soup", nodes, QUERY, np.zeros(many))
        assert (found is not None) is chosen
        assert asking.llm.fallbacks == ({} if chosen else {"page-needed-1: malformed": 1})


def test_long_headings_are_cut_to_their_end(answers: Answers) -> None:
    deep = replace(READY.nodes[0], heading_path=("A very long story. " * 40, "Rinsing"))
    with LlmServer(say=lambda asked: wants("pan", asked)) as server:
        reranker(server, answers).shifts("soup", [deep, *READY.nodes[1:]], QUERY, np.zeros(len(READY.nodes)))
        headings = server.asked[0].fragments[1]["headings"]
    assert headings.endswith("> Rinsing")
    assert len(headings) < 200


def test_published_methods_are_not_reranked(answers: Answers) -> None:
    with LlmServer() as server, pytest.raises(WrongInput, match="only 'facets' can be reranked"):
        page(
            READY, QUERY, encoder=WordEncoder(), tokenizer=WordTokenizer(), method="mmr",
            reranker=reranker(server, answers),
        )  # fmt: skip
