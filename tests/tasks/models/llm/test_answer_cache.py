"""Answers are asked for once, whatever becomes of whoever asked."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator

import pytest

from storage.answers import Answers
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.errors import ContextOverflow, LlmUnavailable, Rejected
from tasks.models.llm.question import Question, Sampling
from tests.support.llm.llm_asking import book_of
from tests.support.llm.llm_server import LlmServer

ASKED = Question("judge-1", (("user", "Does it suffice?"),), Sampling(), doc_ids=("market/bees",))


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=lambda _: "yes") as running:
        yield running


def yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        reason = f"{text!r} is neither yes nor no"
        raise Rejected(reason)
    return text == "yes"


def ask_all(book: AnswerCache, *questions: Question) -> list[bool | BaseException]:
    async def ask() -> list[bool | BaseException]:
        async with book.opened():
            return await asyncio.gather(*(book.ask(q, yes_or_no) for q in questions), return_exceptions=True)

    return asyncio.run(ask())


def test_an_answer_is_asked_for_once_and_by_any_process(server: LlmServer, answers: Answers) -> None:
    assert ask_all(book_of(server.url, answers), ASKED) == [True]
    again = book_of(server.url, answers)
    assert ask_all(again, ASKED) == [True]
    assert server.requests == 1
    assert (again.ledger.counts["cached"], again.ledger.counts["requests"]) == (1, 0)


def test_those_who_ask_the_same_at_once_share_one_request(server: LlmServer, answers: Answers) -> None:
    server.delay = 0.05
    assert ask_all(book_of(server.url, answers), *[ASKED] * 5) == [True] * 5
    assert server.requests == 1


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(ASKED, prompt="judge-2"),
        dataclasses.replace(ASKED, attempt=1),
        dataclasses.replace(ASKED, messages=(("system", "Does it suffice?"),)),
        dataclasses.replace(ASKED, schema={"type": "string"}),
        dataclasses.replace(ASKED, sampling=Sampling(temperature=0.7)),
        dataclasses.replace(ASKED, sampling=Sampling(seed=None)),
        dataclasses.replace(ASKED, sampling=Sampling(max_tokens=5)),
        dataclasses.replace(ASKED, sampling=Sampling(top_p=0.5)),
    ],
)
def test_whatever_may_change_an_answer_is_in_its_key(other: Question) -> None:
    assert other.key("m") != ASKED.key("m")
    assert ASKED.key("m") != ASKED.key("another")


def test_whose_text_it_is_does_not_change_the_key(server: LlmServer, answers: Answers) -> None:
    copy = dataclasses.replace(ASKED, doc_ids=("market/wasps",))
    assert copy.key("m") == ASKED.key("m")
    ask_all(book_of(server.url, answers), ASKED, copy)
    assert answers.forget(lambda doc_id: doc_id == "market/wasps") == 1


def test_three_votes_are_three_requests(server: LlmServer, answers: Answers) -> None:
    votes = [dataclasses.replace(ASKED, attempt=k) for k in range(3)]
    assert ask_all(book_of(server.url, answers), *votes) == [True] * 3
    assert server.requests == 3


def test_a_rejected_answer_is_kept_for_reading_never_used_and_not_paid_for_twice(
    server: LlmServer, answers: Answers
) -> None:
    server.say = lambda _: "perhaps"
    for run in range(2):
        (rejection,) = ask_all(book := book_of(server.url, answers), ASKED)
        assert isinstance(rejection, Rejected)
        assert rejection.reason == "'perhaps' is neither yes nor no"
        assert book.ledger.counts["replayed"] == run
    assert server.requests == 1
    assert [(a.text, a.rejected) for a in answers.kept(rejected=True)] == [
        ("perhaps", "'perhaps' is neither yes nor no")
    ]
    assert answers.kept(rejected=False) == []


@pytest.mark.parametrize("fault", ["overflow", "length"])
def test_what_was_too_long_is_known_to_be(server: LlmServer, answers: Answers, fault: str) -> None:
    server.fault = lambda _: fault
    for _ in range(2):
        (failure,) = ask_all(book_of(server.url, answers), ASKED)
        assert isinstance(failure, ContextOverflow if fault == "overflow" else Rejected)
        assert getattr(failure, "final", True)
    assert server.requests == 1


def test_a_question_without_an_answer_leaves_nothing_behind(server: LlmServer, answers: Answers) -> None:
    server.fault = lambda _: "500"
    (failure,) = ask_all(book_of(server.url, answers), ASKED)
    assert isinstance(failure, LlmUnavailable)
    assert answers.kept(rejected=True) == answers.kept(rejected=False) == []
    server.fault = lambda _: None
    assert ask_all(book_of(server.url, answers), ASKED) == [True]


def test_an_answer_tells_what_it_cost_and_when_it_came(server: LlmServer, answers: Answers) -> None:
    ask_all(book_of(server.url, answers), ASKED)
    (kept,) = answers.kept(rejected=False)
    assert (kept.model, kept.prompt, kept.attempt, kept.text) == ("small-model", "judge-1", 0, "yes")
    assert (kept.prompt_tokens, kept.completion_tokens) == (100, 10)
    assert kept.made_at.endswith("+00:00")


def test_what_a_server_offers_is_found_out_once_for_all_processes(
    server: LlmServer, answers: Answers
) -> None:
    server.fault = lambda asked: "no-format" if "response_format" in asked.body else None
    first, second = (dataclasses.replace(ASKED, schema={"type": "string"}, attempt=k) for k in range(2))
    ask_all(book_of(server.url, answers), first)
    assert server.requests == 3
    ask_all(book_of(server.url, answers), second)
    assert server.requests == 4


def test_half_a_surrogate_pair_is_kept_as_a_question_mark(server: LlmServer, answers: Answers) -> None:
    server.say = lambda _: json.loads('"\\ud800"')
    ask_all(book_of(server.url, answers), ASKED)
    assert answers.kept(rejected=True)[0].text == "?"
