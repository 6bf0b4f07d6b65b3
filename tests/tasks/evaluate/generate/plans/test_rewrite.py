"""Requests in a model's words: those that name another product, or ask for other steps, are discarded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from storage.answers import Answers
from tasks.evaluate.generate.plans.grow import GrownRequest, grow
from tasks.evaluate.generate.plans.rewrite import Rewritten, named_products, rewrite
from tasks.models.llm.budget import Ledger
from tasks.models.llm.question import Sampling
from tests.support.llm.llm_asking import book_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.roots.plan_rows import plan_rows

GROWN = grow(plan_rows(), 12, 42)
STEPS = {f"Kindly: {request.query}": len(request.steps) for request in GROWN.requests}


def kindly(asked: Asked) -> str:
    """Reword a request by one word, and list as many steps as it has."""
    (record,) = asked.fragments
    if "things" in record:
        return json.dumps({"query": f"Kindly: {record['request']}"})
    return json.dumps({"steps": ["something"] * STEPS.get(record["request"], 9)})


def instead(answer: Callable[[str], str], steps: int | None = None) -> Callable[[Asked], str]:
    """Reword a request as `answer` does, and list `steps`."""

    def say(asked: Asked) -> str:
        (record,) = asked.fragments
        if "things" in record:
            return json.dumps({"query": answer(record["request"])})
        return json.dumps({"steps": ["something"] * (steps or 2)})

    return say


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=kindly) as running:
        yield running


def rewritten(server: LlmServer, answers: Answers, requests: tuple[GrownRequest, ...]) -> Rewritten:
    book = book_of(server.url, answers, Ledger())
    return rewrite(requests, GROWN.products, book, sampling=Sampling())


def test_each_request_is_reworded_and_its_steps_are_asked_for_again(
    server: LlmServer, answers: Answers
) -> None:
    found = rewritten(server, answers, GROWN.requests)

    assert [r.query for r in found.requests] == [f"Kindly: {r.query}" for r in GROWN.requests]
    assert all(r.rewritten and "spans" not in r.line()["steps"][0] for r in found.requests)
    assert (found.discarded, found.unfinished) == (Counter(), Counter())
    assert server.requests == 2 * len(GROWN.requests)


def test_what_is_answered_is_not_asked_twice(server: LlmServer, answers: Answers) -> None:
    first = rewritten(server, answers, GROWN.requests)
    sent = server.requests

    assert rewritten(server, answers, GROWN.requests) == first
    assert server.requests == sent


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (instead(lambda query: f"{query} Do all that with Herald."), "names-another"),
        (instead(lambda _: "Do something for me, and something else."), "name-lost"),
        (instead(lambda query: f"{query} And sing.", steps=7), "steps"),
        (lambda _: "I would rather not", "rejected"),
        (lambda _: '{"query": 4}', "rejected"),
    ],
)
def test_a_request_that_no_longer_asks_for_the_same_stays_as_it_was(
    server: LlmServer, answers: Answers, say: Callable[[Asked], str], reason: str
) -> None:
    named = next(r for r in GROWN.requests if r.steps[-1].product and "Herald" not in r.query)
    server.say = say

    found = rewritten(server, answers, (named,))

    assert found.requests == [named]
    assert found.discarded == {reason: 1}


def test_a_request_that_gives_orders_is_quoted_as_data(server: LlmServer, answers: Answers) -> None:
    rewritten(server, answers, GROWN.requests[:1])

    (record,) = server.asked[0].fragments
    assert record["request"] == GROWN.requests[0].query
    assert record["request"] not in str(server.asked[0].body["messages"][0])


def test_an_endpoint_that_is_away_leaves_requests_for_a_later_run(
    server: LlmServer, answers: Answers
) -> None:
    server.fault = lambda _: "500"

    found = rewritten(server, answers, GROWN.requests[:2])

    assert found.requests == list(GROWN.requests[:2])
    assert found.unfinished == {"unavailable": 2}


def test_a_product_is_named_by_whole_words() -> None:
    assert named_products("In jotter, not in Herons.", {"Jotter", "Heron"}) == {"Jotter"}
