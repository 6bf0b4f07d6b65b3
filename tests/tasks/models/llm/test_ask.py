"""An LLM that may fail its callers: they get an answer, or why there is none."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage.answers import Answers
from tasks.models.llm.ask import Fallback, run_blocking
from tasks.models.llm.budget import Ceiling, Ledger, Prices, Usage
from tasks.models.llm.errors import BudgetSpent, LlmDenied
from tasks.models.llm.prompt import Answer, Numbers, Prompt, Values
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer


class Selected(Answer):
    selected: Numbers


PICK: Prompt[Selected] = Prompt("pick-1", "tasks.evaluate/judge_prompt.txt", Selected)
VALUES = Values("Which?", [{"one": 1}, {"two": 2}], ("market/bees",), known=2)


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=lambda _: '{"selected": [2]}') as running:
        yield running


def test_an_answer_is_read_and_asked_for_once(server: LlmServer, answers: Answers) -> None:
    for _ in range(2):
        assert llm_of(server.url, answers).ask(PICK, VALUES) == Selected(selected=[2])
    assert server.requests == 1
    assert answers.forget(lambda doc_id: doc_id == "market/bees") == 1


def test_the_error_is_named_until_the_answer_is_right(server: LlmServer, answers: Answers) -> None:
    server.say = lambda asked: (
        '{"selected": [2]}' if "none of 1 to 2" in asked.prompt else '{"selected": [3]}'
    )
    assert llm_of(server.url, answers).ask(PICK, VALUES) == Selected(selected=[2])
    assert server.requests == 2


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
    server: LlmServer, answers: Answers, fault: str, requests: int, fallback: Fallback, counted: str
) -> None:
    server.fault = lambda _: fault
    llm = llm_of(server.url, answers)
    said = llm.ask(PICK, VALUES)
    assert isinstance(said, Fallback)
    assert said._replace(detail="") == fallback._replace(detail="")
    assert said.detail.startswith(fallback.detail)
    assert server.requests >= requests
    assert llm.fallbacks == Counter({f"pick-1: {counted}": 1})
    assert (said.early, llm.unfinished) == (fault == "500", fault == "500")
    assert llm.told() == f"1 x pick-1: {counted}"
    assert llm.report()["fallbacks"] == dict(llm.fallbacks)


def test_an_answer_that_is_as_long_as_it_may_be_was_cut_whatever_the_server_says(
    server: LlmServer, answers: Answers
) -> None:
    server.say = lambda _: '{"selected": [1, 1, 1, 1'
    server.usage = {"prompt_tokens": 100, "completion_tokens": 1024}
    said = llm_of(server.url, answers).ask(PICK, VALUES)
    assert isinstance(said, Fallback)
    assert (said.detail, said.final, server.requests) == ("the answer was cut at its longest", True, 1)


def test_what_cannot_fit_a_known_context_is_asked_with_shorter_texts(
    server: LlmServer, answers: Answers
) -> None:
    llm = llm_of(server.url, answers, context=4_096)
    long = replace(VALUES, records=[{"task": "Find bees."}, {"text": "buzz " * 4_000}])
    for _ in range(2):
        assert llm.ask(PICK, long) == Selected(selected=[2])
    (asked,) = server.asked
    task, text = asked.fragments
    assert task == {"task": "Find bees."}
    assert "characters left out" in text["text"]
    assert len(asked.prompt) < 3 * (4_096 - 1_024)
    counts = llm.report()
    assert (counts["overflows"], counts["shortened"], counts["answered"]) == (4, 4, 1)
    assert counts["seconds"] >= 0


@pytest.mark.parametrize("whole", [False, True])
def test_what_the_server_finds_too_long_is_asked_with_less_unless_it_must_be_whole(
    server: LlmServer, answers: Answers, whole: bool
) -> None:
    server.fault = lambda asked: "overflow" if len(asked.prompt) > 2_000 else None
    prompt = Prompt("pick-1", "tasks.evaluate/judge_prompt.txt", Selected, whole=whole)
    said = llm_of(server.url, answers).ask(prompt, replace(VALUES, records=[{"text": "buzz " * 1_000}]))
    assert isinstance(said, Fallback) == whole
    assert not whole or said.too_long
    assert server.requests == (1 if whole else 3)


def test_a_spent_budget_is_a_fallback_too(server: LlmServer, answers: Answers) -> None:
    llm = llm_of(server.url, answers, Ledger(ceiling=Ceiling(tokens=10)))
    said = llm.ask(PICK, VALUES)
    assert isinstance(said, Fallback)
    assert (said.reason, said.early, server.requests) == ("budget", True, 0)


def test_a_denied_key_is_none(server: LlmServer, answers: Answers) -> None:
    server.fault = lambda _: "401"
    with pytest.raises(LlmDenied):
        llm_of(server.url, answers).ask(PICK, VALUES)


def test_what_has_no_answer_is_asked_about_by_halves(server: LlmServer, answers: Answers) -> None:
    def shown(asked: Asked) -> list[int]:
        return [record["n"] for record in asked.fragments]

    server.say = lambda asked: json.dumps({"selected": [1] if shown(asked) != [3] else [9]})
    server.fault = lambda asked: "overflow" if len(shown(asked)) > 2 else None
    llm = llm_of(server.url, answers)

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


def test_jobs_are_done_together_and_told_of(server: LlmServer, answers: Answers) -> None:
    told: list[tuple[int, int]] = []
    llm = llm_of(server.url, answers)
    jobs = [llm.answer(PICK, Values(f"Which {n}?", [], known=2)) for n in range(3)]
    assert llm.gather(jobs, lambda *done: told.append(done)) == [Selected(selected=[2])] * 3
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert llm.gather([]) == []


def test_at_least_one_try_is_wanted(server: LlmServer, answers: Answers) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        llm_of(server.url, answers).ask(PICK, VALUES, tries=0)


def test_a_coroutine_is_awaited_with_and_without_a_running_loop() -> None:
    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    async def within() -> int:
        return run_blocking(seven())

    assert run_blocking(seven()) == asyncio.run(within()) == 7


def test_a_ledger_goes_on_where_an_earlier_part_of_the_run_ended() -> None:
    first = Ledger(Prices(prompt=1.0), Ceiling(tokens=1_000))
    first.spend(Usage(600, 100))
    second = Ledger(Prices(prompt=1.0), Ceiling(tokens=1_000), pickle.loads(pickle.dumps(first.carried())))  # noqa: S301 - our own bytes
    assert second.report() == first.report()
    reserved = second.reserve(300, 50)
    assert reserved is not None
    second.release(reserved)
    with pytest.raises(BudgetSpent, match="700 tokens"):
        second.reserve(3_000, 100)
    assert first.tokens == 700


@pytest.mark.parametrize("field", ["spent", "unanswered"])
def test_what_ended_the_asking_ends_it_in_later_parts_too(field: str) -> None:
    first = Ledger()
    setattr(first, field, True)
    assert getattr(Ledger(before=first.carried()), field)


def test_what_fits_alone_but_not_beside_others_is_to_wait_for_them() -> None:
    ledger = Ledger(ceiling=Ceiling(tokens=250))
    first = ledger.reserve(0, 149)
    assert first is not None
    assert ledger.reserve(0, 149) is None
    assert not ledger.spent
    ledger.release(first)
    assert ledger.reserve(0, 149) is not None


def test_what_was_carried_does_not_change_afterwards() -> None:
    ledger = Ledger()
    carried = ledger.carried()
    ledger.spend(Usage(1, 1))
    assert carried.counts == {}
