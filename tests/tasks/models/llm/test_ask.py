"""An LLM and its embeddings: answers are asked for once, and who asks gets one, or why there is none."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from storage.answers import Answers
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.ask import Fallback
from tasks.models.llm.budget import Ceiling, Ledger, Prices, Usage
from tasks.models.llm.client import Endpoint
from tasks.models.llm.embeddings import ApiEncoder
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmDenied, LlmUnavailable, Rejected
from tasks.models.llm.prompt import Answer, Numbers, Prompt, Values
from tasks.models.llm.question import Question, Sampling
from tests.support.llm.llm_asking import book_of, llm_of
from tests.support.llm.llm_server import Asked, LlmServer

QUESTION = Question("judge-1", (("user", "Does it suffice?"),), Sampling(), doc_ids=("market/bees",))


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


def test_an_answer_is_asked_for_once_by_any_process_and_kept_with_its_cost(
    server: LlmServer, answers: Answers
) -> None:
    assert ask_all(book_of(server.url, answers), QUESTION) == [True]
    again = book_of(server.url, answers)
    assert ask_all(again, QUESTION) == [True]
    assert server.requests == 1
    assert (again.ledger.counts["cached"], again.ledger.counts["requests"]) == (1, 0)
    (kept,) = answers.kept(rejected=False)
    assert (kept.model, kept.prompt, kept.attempt, kept.text) == ("small-model", "judge-1", 0, "yes")
    assert (kept.prompt_tokens, kept.completion_tokens) == (100, 10)
    assert kept.made_at.endswith("+00:00")


def test_those_who_ask_the_same_at_once_share_one_request(server: LlmServer, answers: Answers) -> None:
    server.delay = 0.05
    assert ask_all(book_of(server.url, answers), *[QUESTION] * 5) == [True] * 5
    assert server.requests == 1


def test_whose_text_it_is_does_not_change_the_key(server: LlmServer, answers: Answers) -> None:
    copy = dataclasses.replace(QUESTION, doc_ids=("market/wasps",))
    ask_all(book_of(server.url, answers), QUESTION, copy)
    assert server.requests == 1
    assert answers.forget(lambda doc_id: doc_id == "market/wasps") == 1


def test_a_rejected_answer_is_kept_for_reading_never_used_and_not_paid_for_twice(
    server: LlmServer, answers: Answers
) -> None:
    server.say = lambda _: "perhaps"
    for run in range(2):
        (rejection,) = ask_all(book := book_of(server.url, answers), QUESTION)
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
        (failure,) = ask_all(book_of(server.url, answers), QUESTION)
        assert isinstance(failure, ContextOverflow if fault == "overflow" else Rejected)
        assert getattr(failure, "final", True)
    assert server.requests == 1


def test_a_question_without_an_answer_leaves_nothing_behind(server: LlmServer, answers: Answers) -> None:
    server.fault = lambda _: "500"
    (failure,) = ask_all(book_of(server.url, answers), QUESTION)
    assert isinstance(failure, LlmUnavailable)
    assert answers.kept(rejected=True) == answers.kept(rejected=False) == []
    server.fault = lambda _: None
    assert ask_all(book_of(server.url, answers), QUESTION) == [True]


def test_what_a_server_offers_is_found_out_once_for_all_processes(
    server: LlmServer, answers: Answers
) -> None:
    server.fault = lambda asked: "no-format" if "response_format" in asked.body else None
    first, second = (dataclasses.replace(QUESTION, schema={"type": "string"}, attempt=k) for k in range(2))
    ask_all(book_of(server.url, answers), first)
    assert server.requests == 3
    ask_all(book_of(server.url, answers), second)
    assert server.requests == 4


def test_half_a_surrogate_pair_is_kept_as_a_question_mark(server: LlmServer, answers: Answers) -> None:
    server.say = lambda _: json.loads('"\\ud800"')
    ask_all(book_of(server.url, answers), QUESTION)
    assert answers.kept(rejected=True)[0].text == "?"


class Selected(Answer):
    selected: Numbers


PICK: Prompt[Selected] = Prompt("pick-1", "tasks.evaluate/judge_prompt.txt", Selected)
VALUES = Values("Which?", [{"one": 1}, {"two": 2}], ("market/bees",), known=2)


@pytest.fixture
def picking(server: LlmServer) -> LlmServer:
    server.say = lambda _: '{"selected": [2]}'
    return server


def test_the_error_is_named_until_the_answer_is_right(picking: LlmServer, answers: Answers) -> None:
    picking.say = lambda asked: (
        '{"selected": [2]}' if "none of 1 to 2" in asked.prompt else '{"selected": [3]}'
    )
    assert llm_of(picking.url, answers).ask(PICK, VALUES) == Selected(selected=[2])
    assert picking.requests == 2


@pytest.mark.parametrize(
    ("fault", "requests", "fallback", "counted"),
    [
        ("no-json", 3, Fallback("rejected", "there is no complete JSON object in the answer"), "malformed"),
        ("length", 1, Fallback("rejected", "the answer was cut at its longest", final=True), "malformed"),
        ("overflow", 1, Fallback("refused", "too long for the model", too_long=True), "refused"),
        ("refused", 1, Fallback("refused", "the LLM server refuses the question"), "refused"),
        ("500", 5, Fallback("unavailable", "server: status 500"), "unavailable"),
    ],
)
def test_without_an_answer_there_is_a_fallback_that_is_counted(
    picking: LlmServer, answers: Answers, fault: str, requests: int, fallback: Fallback, counted: str
) -> None:
    picking.fault = lambda _: fault
    llm = llm_of(picking.url, answers)
    said = llm.ask(PICK, VALUES)
    assert isinstance(said, Fallback)
    assert said._replace(detail="") == fallback._replace(detail="")
    assert said.detail.startswith(fallback.detail)
    assert picking.requests >= requests
    assert llm.fallbacks == Counter({f"pick-1: {counted}": 1})
    assert (said.early, llm.unfinished) == (fault == "500", fault == "500")
    assert llm.told() == f"1 x pick-1: {counted}"
    assert llm.report()["fallbacks"] == dict(llm.fallbacks)


def test_an_answer_that_is_as_long_as_it_may_be_was_cut_whatever_the_server_says(
    picking: LlmServer, answers: Answers
) -> None:
    picking.say = lambda _: '{"selected": [1, 1, 1, 1'
    picking.usage = {"prompt_tokens": 100, "completion_tokens": 1024}
    said = llm_of(picking.url, answers).ask(PICK, VALUES)
    assert isinstance(said, Fallback)
    assert (said.detail, said.final, picking.requests) == ("the answer was cut at its longest", True, 1)


def test_what_cannot_fit_a_known_context_is_asked_with_shorter_texts(
    picking: LlmServer, answers: Answers
) -> None:
    llm = llm_of(picking.url, answers, context=4_096)
    long = replace(VALUES, records=[{"task": "Find bees."}, {"text": "buzz " * 4_000}])
    for _ in range(2):
        assert llm.ask(PICK, long) == Selected(selected=[2])
    (asked,) = picking.asked
    task, text = asked.fragments
    assert task == {"task": "Find bees."}
    assert "characters left out" in text["text"]
    assert len(asked.prompt) < 3 * (4_096 - 1_024)
    counts = llm.report()
    assert (counts["overflows"], counts["shortened"], counts["answered"]) == (4, 4, 1)
    assert counts["seconds"] >= 0


@pytest.mark.parametrize("whole", [False, True])
def test_what_the_server_finds_too_long_is_asked_with_less_unless_it_must_be_whole(
    picking: LlmServer, answers: Answers, whole: bool
) -> None:
    picking.fault = lambda asked: "overflow" if len(asked.prompt) > 2_000 else None
    prompt = Prompt("pick-1", "tasks.evaluate/judge_prompt.txt", Selected, whole=whole)
    said = llm_of(picking.url, answers).ask(prompt, replace(VALUES, records=[{"text": "buzz " * 1_000}]))
    assert isinstance(said, Fallback) == whole
    assert not whole or said.too_long
    assert picking.requests == (1 if whole else 3)


def test_a_spent_budget_is_a_fallback_too(picking: LlmServer, answers: Answers) -> None:
    llm = llm_of(picking.url, answers, Ledger(ceiling=Ceiling(tokens=10)))
    said = llm.ask(PICK, VALUES)
    assert isinstance(said, Fallback)
    assert (said.reason, said.early, picking.requests) == ("budget", True, 0)


def test_a_denied_key_is_none_and_at_least_one_try_is_wanted(picking: LlmServer, answers: Answers) -> None:
    picking.fault = lambda _: "401"
    with pytest.raises(LlmDenied):
        llm_of(picking.url, answers).ask(PICK, VALUES)
    with pytest.raises(ValueError, match="at least 1"):
        llm_of(picking.url, answers).ask(PICK, VALUES, tries=0)


def test_what_has_no_answer_is_asked_about_by_halves(picking: LlmServer, answers: Answers) -> None:
    def shown(asked: Asked) -> list[int]:
        return [record["n"] for record in asked.fragments]

    picking.say = lambda asked: json.dumps({"selected": [1] if shown(asked) != [3] else [9]})
    picking.fault = lambda asked: "overflow" if len(shown(asked)) > 2 else None
    llm = llm_of(picking.url, answers)

    def values(part: list[int]) -> Values:
        return Values("Which?", [{"n": n} for n in part], known=len(part))

    def halves(part: list[int], _fallback: Fallback) -> list[list[int]]:
        return [part[: len(part) // 2], part[len(part) // 2 :]] if len(part) > 1 else []

    (found,) = llm.gather([llm.answer_parts(PICK, [0, 1, 2, 3, 4], values, halves, tries=2)])
    assert [part for part, _ in found] == [[0, 1], [2], [3, 4]]
    assert [isinstance(said, Fallback) for _, said in found] == [False] * 3
    (alone,) = llm.gather([llm.answer_parts(PICK, [3], values, halves, tries=2)])
    assert [(part, isinstance(said, Fallback)) for part, said in alone] == [([3], True)]
    assert llm.fallbacks == Counter()


def test_jobs_are_done_together_and_told_of_within_a_running_loop_too(
    picking: LlmServer, answers: Answers
) -> None:
    told: list[tuple[int, int]] = []
    llm = llm_of(picking.url, answers)
    jobs = [llm.answer(PICK, Values(f"Which {n}?", [], known=2)) for n in range(3)]

    async def within() -> list[Selected | Fallback]:
        return llm.gather(jobs, lambda *done: told.append(done))

    assert asyncio.run(within()) == [Selected(selected=[2])] * 3
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert llm.gather([]) == []


def test_a_ledger_goes_on_where_an_earlier_part_of_the_run_ended() -> None:
    first = Ledger(Prices(prompt=1.0), Ceiling(tokens=1_000))
    nothing = first.carried()
    first.spend(Usage(600, 100))
    second = Ledger(Prices(prompt=1.0), Ceiling(tokens=1_000), pickle.loads(pickle.dumps(first.carried())))  # noqa: S301 - our own bytes
    assert second.report() == first.report()
    reserved = second.reserve(300, 50)
    assert reserved is not None
    second.release(reserved)
    with pytest.raises(BudgetSpent, match="700 tokens"):
        second.reserve(3_000, 100)
    second.unanswered = 3
    third = Ledger(before=second.carried())
    assert (first.tokens, nothing.counts, third.spent, third.unanswered) == (700, {}, True, 3)


def test_what_fits_alone_but_not_beside_others_is_to_wait_for_them() -> None:
    ledger = Ledger(ceiling=Ceiling(tokens=250))
    first = ledger.reserve(0, 149)
    assert first is not None
    assert ledger.reserve(0, 149) is None
    assert not ledger.spent
    ledger.release(first)
    assert ledger.reserve(0, 149) is not None


def encoder(server: LlmServer, ledger: Ledger, name: str = "letters") -> ApiEncoder:
    return ApiEncoder(Endpoint(server.url, "m", api_key="sk-hush"), name, ledger)


def test_its_vectors_are_unit_in_the_order_of_the_texts_and_cost_what_their_tokens_do(
    server: LlmServer,
) -> None:
    ledger = Ledger(Prices(prompt=1000))
    found = encoder(server, ledger).encode(["b" * 99, "", "c" * 99])
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)
    assert found.argmax(axis=1).tolist() == [1, 0, 2]
    assert (ledger.counts["requests"], ledger.tokens) == (1, 67)  # guessed: this server does not count
    assert ledger.cost == pytest.approx(0.067)
    assert ledger.counts["tokens_guessed"] == 67


def test_what_passes_the_ceiling_is_not_asked(server: LlmServer) -> None:
    ledger, before = Ledger(Prices(prompt=1e6), Ceiling(money=50)), len(server.embedded)
    asking = encoder(server, ledger)
    asking.encode(["a" * 99])
    with pytest.raises(BudgetSpent, match="34 tokens and 34"):
        asking.encode(["a" * 99])
    assert len(server.embedded) == before + 1


def test_a_model_that_is_not_there_is_told_and_costs_nothing(server: LlmServer) -> None:
    ledger = Ledger()
    with pytest.raises(LlmDenied, match="no such model"):
        encoder(server, ledger, "figures").encode(["a"])
    assert (ledger.tokens, +ledger._under_way) == (0, {})
