"""The client of any OpenAI-compatible endpoint: one question, one answer, within deadline and budget."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import logging
import random as chances
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

from storage.errors import SkilleryError, WrongInput
from tasks.models.http_body import ENCODINGS, BodyRefused, unpacked
from tasks.models.llm.budget import Ledger, Reservation, Usage, guessed_tokens
from tasks.models.llm.chat_completion import Dialect, Reply, read_reply
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, error_of_status
from tasks.models.llm.question import Question
from tasks.models.retry import RetryPolicy, retrying

if TYPE_CHECKING:
    import httpx
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)
_MOST_BYTES = 20_000_000  # of one answer, unpacked
# More patient than crawling: an answer takes a model minutes, and its server queues questions.
LLM_RETRY = RetryPolicy(tries=5, wait_min=1.0, wait_max=30.0, server_wait_max=120.0)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served, and how it is asked.

    Raises:
        WrongInput: URL or model is missing, the key is none that a header can carry (the message hides it),
            or a number is out of its range.
    """

    base_url: str  # with the version: `http://127.0.0.1:8000/v1`
    model: str  # the model's name there
    api_key: str = field(default="", repr=False)  # never shown or logged; empty sends none
    timeout: float = 120.0  # seconds that one request may take in all, its answer read to the end
    concurrency: int = 4  # questions under way at once
    retry: RetryPolicy = LLM_RETRY  # when a question without an answer is sent again
    # Questions in a row without an answer after which the server is asked nothing more.
    give_up_after: int = 8
    context: int | None = None  # tokens of question and answer that the model takes; None: its server says

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")) or not self.model:
            raise WrongInput(
                f"LLM base URL {self.base_url!r}, model {self.model!r}: "
                "set SKILLERY_LLM_BASE_URL to http(s)://.../v1 and SKILLERY_LLM_MODEL to a model's name"
            )
        key = self.api_key
        if not (key.isascii() and key.isprintable() and key == key.strip()):
            msg = "SKILLERY_LLM_API_KEY holds white space or characters beyond ASCII: set it to the bare key"
            raise WrongInput(msg)
        if not (self.timeout > 0 and self.concurrency >= 1 and self.give_up_after >= 1):
            raise WrongInput(f"{self}: timeout must be above 0, concurrency and give_up_after at least 1")


class LlmClient:
    """Asks an endpoint; use it in an `async with` statement, in one event loop at a time.

    Args:
        endpoint: Where and how.
        ledger: Counts, and says when to stop.
        dialect: What the server is known to take; None: the first question finds out.
        learnt: Told of the dialect once it is known.
        slot: Entered around each question: a limit across processes, such as Prefect's.
        clock, sleep, random: The time, aware; waits, seconds; spreads waits, in [0, 1).
    """

    def __init__(
        self, endpoint: Endpoint, ledger: Ledger, *, dialect: Dialect | None = None,
        learnt: Callable[[Dialect], None] | None = None,
        slot: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = chances.random,
    ) -> None:  # fmt: skip
        self.endpoint, self.ledger, self.dialect = endpoint, ledger, dialect
        self._learnt, self._slot = learnt, slot
        self._clock, self._sleep, self._random = clock, sleep, random
        self._plain: Dialect | None = None
        self._resume_at: datetime | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold the connections of one event loop; without the package `openai`, raise `WrongInput`."""
        self._openai = _library()
        # What OPENAI_* variables hold is meant for another server; a key that nobody gave is not sent.
        names = ["OpenAI-Organization", "OpenAI-Project"]
        names += [] if self.endpoint.api_key else ["Authorization"]
        self._headers = {name: self._openai.Omit() for name in names}
        self._room = asyncio.Semaphore(self.endpoint.concurrency)
        self._first, self._released = asyncio.Lock(), asyncio.Event()
        async with _connect(self._openai, self.endpoint) as connection:
            self._connection: AsyncOpenAI = connection
            yield

    async def ask(self, question: Question) -> Reply:
        """Return the model's answer, unchecked.

        Raises:
            BudgetSpent: The ceiling is reached; nothing was sent.
            LlmDenied: No question will be answered: key, model or URL is wrong.
            ContextOverflow: The question is too long for the model.
            LlmRefused: The server refuses this question.
            LlmUnavailable: No answer came, or too many questions in a row had none.
        """
        async with self._room, self._slot():
            if self.ledger.unanswered >= self.endpoint.give_up_after:
                reason = f"{self.ledger.unanswered} questions in a row had no answer; nothing more is asked"
                raise LlmUnavailable("given-up", reason)
            reserved = await self._reserve(question)
            try:
                reply = await self._in_dialect(question)
                # Before the reservation is given back, or another thread would see neither of them.
                self.ledger.spend(reply.usage or _guess(question, reply))
            except ContextOverflow:
                self.ledger.counts["overflows"] += 1
                raise
            except (LlmRefused, LlmUnavailable) as failure:
                self.ledger.unanswered += 1
                log.warning("%s: a question had no answer: %s", self.endpoint.model, failure)
                raise
            except BudgetSpent:
                self.ledger.spent = True
                raise
            finally:
                self.ledger.release(reserved)
                self._released.set()
            self.ledger.unanswered = 0
            return reply

    async def _reserve(self, question: Question) -> Reservation:
        """Set aside what a question may cost, after others where it does not fit beside them."""
        size, most = question.n_bytes(), question.sampling.max_tokens
        while (reserved := self.ledger.reserve(size, most)) is None:
            self._released.clear()
            # Another client of this ledger tells its own waiters alone: so look again after a second.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), timeout=1.0)
        return reserved

    async def _in_dialect(self, question: Question) -> Reply:
        if self._known(question) is None:
            # One question alone finds out what the server takes; the others wait for it.
            async with self._first:
                if self._known(question) is None:
                    return await self._find_dialect(question)
        return await self._persistently(question, self._known(question) or Dialect())

    def _known(self, question: Question) -> Dialect | None:
        """Return what the server takes; of response formats, a question without one tells nothing."""
        return self.dialect or (self._plain if question.schema is None else None)

    async def _find_dialect(self, question: Question) -> Reply:
        tried = self._plain or Dialect()
        while True:
            try:
                reply = await self._persistently(question, tried)
            except LlmRefused as refusal:
                poorer = tried.poorer(str(refusal), question)
                if poorer is None or isinstance(refusal, ContextOverflow):
                    raise
                tried = poorer
                continue
            self._plain = tried
            if question.schema is not None:
                self.dialect = tried
                if self._learnt is not None:
                    self._learnt(tried)
            return reply

    async def _persistently(self, question: Question, dialect: Dialect) -> Reply:
        def retried(_failure: BaseException | None, _tried: int) -> None:
            self.ledger.counts["retries"] += 1

        tries = retrying(
            self.endpoint.retry,
            # Another try may help, after a wait that the policy accepts.
            again=lambda failure: (
                isinstance(failure, LlmUnavailable) and self.endpoint.retry.accepts(failure.retry_after)
            ),
            # What the server asks for, if that is longer than our own backoff.
            wait=lambda failure, own: max(own, getattr(failure, "retry_after", None) or 0.0),
            before_sleep=retried,
            sleep=self._sleep,
            random=self._random,
        )
        return await tries(self._send, question, dialect)

    async def _send(self, question: Question, dialect: Dialect) -> Reply:
        await self._pause()
        self.ledger.counts["requests"] += 1
        began = time.monotonic()
        try:
            return await self._exchange(question, dialect)
        except LlmUnavailable as failure:
            # The model was at work, and its server will say so on the bill.
            if failure.reason in ("timeout", "cut"):
                self.ledger.spend_unseen(question.n_bytes())
            raise
        finally:
            self.ledger.counts["milliseconds"] += round(1000 * (time.monotonic() - began))

    async def _exchange(self, question: Question, dialect: Dialect) -> Reply:
        messages = [{"role": role, "content": content} for role, content in question.messages]
        create: Any = self._connection.chat.completions.with_raw_response.create
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                answer = await create(
                    model=self.endpoint.model,
                    messages=messages,
                    extra_headers=self._headers,
                    **dialect.arguments(question),
                )
            response = answer.http_response
            return read_reply(response.text, response.headers.get("content-type", ""))
        except (self._openai.APIError, TimeoutError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> SkilleryError:
        if isinstance(error, TimeoutError | self._openai.APITimeoutError):
            return LlmUnavailable("timeout", f"no whole answer within {self.endpoint.timeout:g} s")
        if not isinstance(error, self._openai.APIStatusError):
            cause = error.__cause__ or error
            if isinstance(cause, BodyRefused):
                return LlmUnavailable("cut", f"the answer cannot be read: {cause}")
            return LlmUnavailable("connection", f"{type(cause).__name__} {self._hidden(str(cause))}")
        response = error.response
        failure = error_of_status(
            response.status_code, response.headers, self._hidden(response.text), self._clock()
        )
        if isinstance(failure, LlmUnavailable) and failure.reason == "rate-limited" and failure.retry_after:
            wait = min(failure.retry_after, self.endpoint.retry.server_wait_max)
            self._resume_at = self._clock() + timedelta(seconds=wait)
        return failure

    async def _pause(self) -> None:
        """Wait while the server, having answered another question with 429, wants to be left alone."""
        left = (self._resume_at - self._clock()).total_seconds() if self._resume_at else 0.0
        if left > 0:
            await self._sleep(left)

    def _hidden(self, text: str) -> str:
        key = self.endpoint.api_key
        return text.replace(key, "***") if key else text


def require_openai() -> None:
    """Raise `WrongInput` if the package that asks an LLM is not installed."""
    if importlib.util.find_spec("openai") is None:
        msg = "an LLM is asked through the package openai: pip install '.[llm]' in Skillery's folder"
        raise WrongInput(msg)


def _library() -> ModuleType:
    require_openai()
    return importlib.import_module("openai")


def _connect(openai: ModuleType, endpoint: Endpoint) -> AsyncOpenAI:
    client: AsyncOpenAI = openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        timeout=endpoint.timeout,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(
            verify=_trusted(), timeout=endpoint.timeout, headers={"Accept-Encoding": ENCODINGS},
            event_hooks={"response": [_bounded]},
        ),
    )  # fmt: skip
    return client


async def _bounded(response: httpx.Response) -> None:
    """Read the body of an answer up to a bound: the library by itself unpacks whatever comes."""
    whole: Any = response.stream  # of its two declared types, the asynchronous one
    try:
        body = b"".join([piece async for piece in unpacked(whole, response.headers, _MOST_BYTES)])
    finally:
        await whole.aclose()
    response.headers.pop("Content-Encoding", None)
    response.stream = importlib.import_module("httpx").ByteStream(body)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return the certificates that are trusted, read once: that takes a quarter of a second."""
    context: ssl.SSLContext = importlib.import_module("httpx").create_ssl_context()
    return context


def _guess(question: Question, reply: Reply) -> Usage:
    said = len(reply.text.encode(errors="replace"))
    return Usage(guessed_tokens(question.n_bytes()), guessed_tokens(said), counted=False)
