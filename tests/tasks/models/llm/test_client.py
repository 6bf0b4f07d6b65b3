"""The client against a server that misbehaves."""

from __future__ import annotations

import asyncio
import math
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.models.llm.budget import Ceiling, Ledger, Prices
from tasks.models.llm.chat_completion import Dialect, Reply
from tasks.models.llm.client import Endpoint, LlmClient
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmDenied, LlmRefused, LlmUnavailable
from tasks.models.llm.question import Question, Sampling
from tasks.models.retry import RetryPolicy
from tests.support.llm.llm_server import Asked, Fault, LlmServer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = {"type": "object", "properties": {"1": {"enum": ["yes", "no"]}}, "required": ["1"]}


class Time:
    """Goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.sleeps = NOON, list[float]()

    def clock(self) -> datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += timedelta(seconds=seconds)
        await asyncio.sleep(0)


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=lambda _: "yes") as running:
        yield running


def question(number: int = 0, schema: dict[str, Any] | None = None, **sampling: Any) -> Question:  # noqa: ANN401
    return Question("ask-1", (("user", f"Is {number} even?"),), Sampling(**sampling), schema)


def client_of(server: LlmServer, time: Time | None = None, **settings: Any) -> LlmClient:  # noqa: ANN401
    ledger = settings.pop("ledger", None) or Ledger()
    options = {k: settings.pop(k) for k in ("learnt", "slot") if k in settings}
    endpoint = Endpoint(server.url, "small-model", **{"timeout": 10.0, **settings})
    time = time or Time()
    return LlmClient(endpoint, ledger, clock=time.clock, sleep=time.sleep, random=lambda: 0.5, **options)


def ask_all(client: LlmClient, *questions: Question) -> list[Reply | BaseException]:
    async def ask() -> list[Reply | BaseException]:
        async with client.opened():
            return await asyncio.gather(*map(client.ask, questions), return_exceptions=True)

    return asyncio.run(ask())


def ask(client: LlmClient, asked: Question) -> Reply:
    (answer,) = ask_all(client, asked)
    if isinstance(answer, BaseException):
        raise answer
    return answer


def in_turn(*faults: str | None) -> Fault:
    left = list(faults)
    return lambda _: left.pop(0) if left else None


def test_a_question_is_sent_as_it_is_and_its_answer_counted(server: LlmServer) -> None:
    ledger = Ledger(Prices(prompt=2.0, completion=10.0))
    client = client_of(server, ledger=ledger, api_key="sk-hush")
    reply = ask(client, question(temperature=0.3, seed=7, max_tokens=50, top_p=0.9))
    assert (reply.text, reply.finish) == ("yes", "stop")
    server.fault = in_turn("stream")  # though nobody asked for one
    assert ask(client, question()).text == "yes"
    asked, _ = server.asked
    assert asked.body["messages"] == [{"role": "user", "content": "Is 0 even?"}]
    sent = {k: asked.body[k] for k in ("model", "temperature", "seed", "max_tokens", "top_p")}
    assert sent == {"model": "small-model", "temperature": 0.3, "seed": 7, "max_tokens": 50, "top_p": 0.9}
    assert "response_format" not in asked.body
    assert asked.headers["Authorization"] == "Bearer sk-hush"
    assert ledger.tokens == 220
    assert ledger.cost == pytest.approx(0.0006)


def test_no_key_is_sent_where_none_is_given_and_nothing_of_another_account(
    server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-another-server")
    ask(client_of(server), question())
    assert "Authorization" not in server.asked[0].headers
    assert "of-another-server" not in str(server.asked[0].headers)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        *({"prompt_tokens": odd, "completion_tokens": 1} for odd in (10**400, -1, True, 1.5, "3", math.nan)),
    ],
    ids=str,
)
def test_tokens_that_the_server_does_not_count_are_guessed_and_said_to_be(
    server: LlmServer, usage: dict[str, object] | None
) -> None:
    server.usage = usage
    client = client_of(server, ledger=Ledger(Prices(1.0, 1.0)))
    ask(client, question())
    assert client.ledger.counts["tokens_guessed"] == client.ledger.tokens > 0
    assert client.ledger.cost < 1


def test_an_answer_that_unpacks_without_end_takes_no_memory(server: LlmServer) -> None:
    server.fault = in_turn("bomb")
    client = client_of(server)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ask(client, question()).text == "yes"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # KB
    assert client.ledger.counts["retries"] == 1


@pytest.mark.parametrize("fault", ["rate", "500", "cut", "cut-stream", "html"])
def test_what_may_pass_is_tried_again_with_growing_waits(server: LlmServer, fault: str) -> None:
    """An answer that is lost half way is paid for."""
    server.fault, time = in_turn(fault, fault), Time()
    client = client_of(server, time)
    assert ask(client, question()).text == "yes"
    assert time.sleeps == [1.5, 3.0]
    assert (client.ledger.counts["requests"], client.ledger.counts["retries"]) == (3, 2)
    guessed = client.ledger.counts["tokens_guessed"]
    assert (client.ledger.tokens - guessed, guessed > 0) == (110, fault == "cut-stream")


@pytest.mark.parametrize("tries", [1, 3])
def test_what_one_question_was_told_to_wait_the_others_wait_too(server: LlmServer, tries: int) -> None:
    server.fault, time = in_turn("rate-after"), Time()
    client = client_of(server, time, retry=RetryPolicy(tries=tries), concurrency=1)
    first, second = ask_all(client, question(0), question(1))
    assert isinstance(first, LlmUnavailable if tries == 1 else Reply)
    assert isinstance(second, Reply)
    assert time.sleeps == [7.0]


def test_a_server_that_asks_for_too_much_time_is_given_up(server: LlmServer) -> None:
    server.fault = in_turn("rate-after")
    client = client_of(server, retry=RetryPolicy(server_wait_max=5.0))
    with pytest.raises(LlmUnavailable, match="rate-limited") as caught:
        ask(client, question())
    assert caught.value.retry_after == 7.0
    assert server.requests == 1


def test_a_slow_answer_is_not_waited_for_beyond_its_deadline(server: LlmServer) -> None:
    server.fault = in_turn("timeout")
    client = client_of(server, timeout=0.3)
    assert ask(client, question()).text == "yes"
    assert server.requests == 2


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("401", LlmDenied, "SKILLERY_LLM_API_KEY"),
        ("404", LlmDenied, "SKILLERY_LLM_MODEL"),
        ("overflow", ContextOverflow, "too long"),
        ("refused", LlmRefused, "not this one"),
        ("no-money", BudgetSpent, "account is empty"),
    ],
)
def test_what_cannot_pass_is_not_tried_again(
    server: LlmServer, fault: str, error: type[Exception], words: str
) -> None:
    server.fault = in_turn(fault)
    client = client_of(server, api_key="sk-hush")
    with pytest.raises(error, match=words) as caught:
        ask(client, question())
    assert "sk-hush" not in f"{caught.value} {client.endpoint!r}"
    assert ("***" in str(caught.value)) == (fault == "401")
    assert server.requests == 1


def test_a_response_format_that_is_not_offered_is_left_out_from_then_on(server: LlmServer) -> None:
    def fault(asked: Asked) -> str | None:
        return "no-format" if "response_format" in asked.body else None

    server.fault = fault
    learnt: list[Dialect] = []
    client = client_of(server, learnt=learnt.append)
    answers = ask_all(client, *(question(k, SCHEMA) for k in range(4)))
    assert all(isinstance(answer, Reply) for answer in answers)
    formats = [asked.body.get("response_format", {}).get("type") for asked in server.asked]
    assert formats == ["json_schema", "json_object", None, None, None, None]
    assert [dialect.response_format for dialect in learnt] == ["none"]


@pytest.mark.parametrize(
    ("said", "gone", "there"),
    [
        ("use max_completion_tokens instead", "max_tokens", "max_completion_tokens"),
        ("temperature is fixed for this model", "temperature", "max_tokens"),
        ("Unexpected keys: seed", "seed", "temperature"),
    ],
)
def test_a_parameter_that_the_server_names_is_left_out(
    server: LlmServer, said: str, gone: str, there: str
) -> None:
    server.refuses = said
    server.fault = lambda asked: "refuses" if gone in asked.body else None
    answers = ask_all(client_of(server), question(0, SCHEMA), question(1, SCHEMA))
    assert all(isinstance(answer, Reply) for answer in answers)
    assert server.requests == 3
    assert there in server.asked[-1].body
    assert "response_format" in server.asked[-1].body


def test_a_question_that_is_refused_in_every_format_settles_none_and_one_that_is_offered_is_kept(
    server: LlmServer,
) -> None:
    server.fault = lambda asked: "refused" if "Is 0" in asked.prompt else None
    client = client_of(server)
    refused, answered, _ = ask_all(client, *(question(k, SCHEMA) for k in range(3)))
    assert isinstance(refused, LlmRefused)
    assert isinstance(answered, Reply)
    assert client.dialect is not None
    assert client.dialect.response_format == "json_schema"
    sent = [asked.body["response_format"]["json_schema"] for asked in server.asked[-2:]]
    assert [(each["schema"], each["strict"]) for each in sent] == [(SCHEMA, True)] * 2


def test_so_many_questions_are_under_way_and_no_more(server: LlmServer) -> None:
    server.delay = 0.05
    ask_all(client_of(server, concurrency=3), *map(question, range(9)))
    assert server.most_at_once == 3


def test_a_limit_across_processes_is_entered_around_each_question(server: LlmServer) -> None:
    entered = []

    @asynccontextmanager
    async def slot() -> AsyncIterator[None]:
        entered.append("in")
        yield
        entered.append("out")

    ask_all(client_of(server, slot=slot, concurrency=1), question(0), question(1))
    assert entered == ["in", "out"] * 2


def test_a_server_that_is_down_is_not_asked_for_ever(server: LlmServer) -> None:
    server.fault = in_turn("500", "cut", *["500"] * 9)  # after the last try the last failure is told
    client = client_of(server, concurrency=1, give_up_after=2, retry=RetryPolicy(tries=2))
    failures = ask_all(client, *map(question, range(6)))
    reasons = [failure.reason for failure in failures if isinstance(failure, LlmUnavailable)]
    assert reasons == ["connection", "server"] + ["given-up"] * 4
    assert server.requests == 4
    server.fault = in_turn("500", None, "500", None)  # an answer in between renews the patience
    client = client_of(server, concurrency=1, give_up_after=2, retry=RetryPolicy(tries=1))
    answers = ask_all(client, *map(question, range(5)))
    assert [isinstance(answer, Reply) for answer in answers] == [False, True, False, True, True]


@pytest.mark.parametrize("ceiling", [Ceiling(tokens=350), Ceiling(money=0.00035)])
def test_the_ceiling_is_never_passed_and_holds_for_good(server: LlmServer, ceiling: Ceiling) -> None:
    ledger = Ledger(Prices(1.0, 1.0), ceiling)
    client = client_of(server, ledger=ledger, concurrency=1)
    answers = ask_all(client, *(question(k, max_tokens=20) for k in range(8)))
    stopped = [isinstance(answer, BudgetSpent) for answer in answers]
    assert stopped == [False] * 3 + [True] * 5
    assert ledger.tokens == 330
    assert ledger.spent


@pytest.mark.parametrize(("tokens", "answered"), [(450, 4), (130, 1)])
def test_a_question_waits_for_those_under_way_where_the_ceiling_is_near(
    server: LlmServer, tokens: int, answered: int
) -> None:
    server.delay = 0.02
    client = client_of(server, ledger=Ledger(ceiling=Ceiling(tokens=tokens)), concurrency=4)
    answers = ask_all(client, *(question(k, max_tokens=100) for k in range(5)))
    assert sum(isinstance(answer, Reply) for answer in answers) == server.requests == answered
    assert client.ledger.tokens == 110 * answered


@pytest.mark.parametrize(
    "wrong", [{"base_url": "host/v1"}, {"model": ""}, {"concurrency": 0}, {"timeout": 0}]
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongInput, match=next(iter(wrong)).replace("base_url", "BASE_URL")):
        Endpoint(**{"base_url": "http://host/v1", "model": "m", **wrong})


@pytest.mark.parametrize("key", ["sk-hush\n", " sk-hush", "sk-h\u00fcsh"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(WrongInput, match="SKILLERY_LLM_API_KEY") as caught:
        Endpoint("http://host/v1", "m", key)
    assert "sk-h" not in str(caught.value)


def test_without_the_package_the_message_says_what_to_install(
    server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(WrongInput, match=r"pip install '\.\[llm\]'"):
        ask(client_of(server), question())
