"""Asks an LLM: kept answers first, again with the error named, else a fallback, all of it counted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from storage.answers import Answers, KeptAnswer
from storage.root import Root
from tasks.models.llm.budget import Ceiling, Ledger, Prices, guessed_tokens
from tasks.models.llm.chat_completion import Dialect, Reply
from tasks.models.llm.client import Endpoint, LlmClient
from tasks.models.llm.errors import (
    CUT,
    FILTERED,
    TOO_LONG,
    BudgetSpent,
    ContextOverflow,
    LlmRefused,
    LlmUnavailable,
    Rejected,
)
from tasks.models.llm.prompt import Prompt, Values, shorter
from tasks.models.llm.question import Question, Sampling

T = TypeVar("T")
P = TypeVar("P")
Report = Callable[[int, int], None]  # is told how many are done, and of how many
Slot = Callable[[], AbstractAsyncContextManager[object]]
TRIES = 3  # requests for one answer, as in SkillPager, section 4.1
# The reasons for which asking ended early: a later run may ask about what they left.
EARLY = ("budget", "unavailable")
_ENDS = {"length": CUT, "content_filter": FILTERED}
_DIALECT = "dialect"


class Fallback(NamedTuple):
    """Stands for an answer that is not there: why, in a word and in words."""

    # `rejected` (no answer could be used), `refused` (the server refuses the question, or it is too long),
    # `budget`, `unavailable`.
    reason: str
    detail: str
    final: bool = False  # whether the answer was cut or held back: less must be asked for
    too_long: bool = False  # whether the question does not fit the model

    @property
    def early(self) -> bool:
        """Whether a later run may get the answer: the ceiling or the server stood in the way."""
        return self.reason in EARLY


class AnswerCache:
    """An LLM that is asked each question once, whatever is killed in between.

    An answer is kept as soon as it is there. If it passed its check, it is the answer from then on; if it
    failed, it is never used, but the same question is not paid for again: the caller goes on to its next
    attempt. A question without an answer leaves nothing behind.
    """

    def __init__(self, client: LlmClient, answers: Answers) -> None:
        self.client, self.answers = client, answers
        self.model, self.ledger = client.endpoint.model, client.ledger
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Of the answers that this object gave, be they new or kept, and of the questions.
        self.prompt_tokens = self.completion_tokens = 0

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Hold the client's connections of one event loop."""
        return self.client.opened()

    async def ask(self, question: Question, check: Callable[[str], T]) -> T:
        """Return what `check` makes of the answer; several who ask the same at once share one request.

        Nothing is sent if the question's key has an answer.

        Raises:
            Rejected: The answer, now or before, failed the check, was cut or held back.
            ContextOverflow: The question is too long for the model, now or before.
            BudgetSpent, LlmDenied, LlmRefused, LlmUnavailable: As `LlmClient.ask`.
        """
        key = question.key(self.model)
        async with self._asking.setdefault(key, asyncio.Lock()):
            kept = self.answers.find(key)
            if kept is None:
                return await self._fetch(question, key, check)
        self.answers.keep(kept, question.doc_ids)
        return self._again(kept, check)

    def _again(self, kept: KeptAnswer, check: Callable[[str], T]) -> T:
        self.ledger.counts["cached" if kept.rejected is None else "replayed"] += 1
        self._count(kept)
        if kept.rejected == TOO_LONG:
            raise ContextOverflow(TOO_LONG)
        if kept.rejected is not None:
            raise Rejected(kept.rejected)
        return check(kept.text)

    async def _fetch(self, question: Question, key: str, check: Callable[[str], T]) -> T:
        context, tokens = self.client.endpoint.context, guessed_tokens(question.n_bytes())
        if context is not None and tokens + question.sampling.max_tokens > context:
            self.ledger.counts["overflows"] += 1
            raise ContextOverflow(TOO_LONG)
        try:
            reply = await self.client.ask(question)
        except ContextOverflow:
            self._keep(question, key, None, TOO_LONG)
            raise
        try:
            if reply.finish in _ENDS:
                raise Rejected(_ENDS[reply.finish])
            checked = check(reply.text)
        except Rejected as found:
            # Some servers say `stop` of an answer that is as long as it may be, and breaks off there.
            written = reply.usage.completion_tokens if reply.usage else 0
            rejection = Rejected(CUT) if written >= question.sampling.max_tokens else found
            self.ledger.counts["rejected"] += 1
            self._keep(question, key, reply, rejection.reason)
            raise rejection from found
        self.ledger.counts["accepted"] += 1
        self._keep(question, key, reply, None)
        return checked

    def keep(self, question: Question, text: str) -> None:
        """Keep what is known to be the answer to a question that was not sent as it is."""
        self._keep(question, question.key(self.model), Reply(text, "stop", None), None)

    def _keep(self, question: Question, key: str, reply: Reply | None, rejected: str | None) -> None:
        usage = reply.usage if reply else None
        answer = KeptAnswer(
            key=key, model=self.model, prompt=question.prompt, attempt=question.attempt,
            text=reply.text.encode(errors="replace").decode() if reply else "", rejected=rejected,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            made_at=datetime.now(UTC).isoformat(),
        )  # fmt: skip
        self._count(answer)
        self.answers.keep(answer, question.doc_ids)

    def _count(self, answer: KeptAnswer) -> None:
        self.prompt_tokens += answer.prompt_tokens or 0
        self.completion_tokens += answer.completion_tokens or 0


def open_cache(endpoint: Endpoint, answers: Answers, ledger: Ledger, **options: Any) -> AnswerCache:  # noqa: ANN401
    """Return the cache of an endpoint; what it takes of the protocol is remembered beside the answers.

    The caller closes `answers`; `options` are `slot`, `clock`, `sleep` and `random` of `LlmClient`.
    """
    name = f"{endpoint.base_url}|{endpoint.model}"
    known = answers.offered(name).get(_DIALECT)
    client = LlmClient(
        endpoint,
        ledger,
        dialect=Dialect(**json.loads(known)) if known else None,
        learnt=lambda dialect: answers.learn(name, _DIALECT, json.dumps(asdict(dialect))),
        **options,
    )
    return AnswerCache(client, answers)


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """Which LLM is asked, and what it may cost; small, and fit to be sent to another process."""

    endpoint: Endpoint  # where it is served, and how it is asked
    sampling: Sampling = field(default_factory=Sampling)  # how answers are drawn
    prices: Prices = field(default_factory=Prices)  # what its tokens cost
    ceiling: Ceiling = field(default_factory=Ceiling)  # what one run may spend


class Llm:
    """An LLM that stages ask; it may fail them, and each has an answer of its own then."""

    def __init__(self, cache: AnswerCache, sampling: Sampling | None = None) -> None:
        self.cache, self.sampling = cache, sampling or Sampling()
        self.fallbacks: Counter[str] = Counter()

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self.cache.model

    @property
    def name(self) -> str:
        """The name that is told of what the model said."""
        return f"llm:{self.model}"

    @property
    def ledger(self) -> Ledger:
        """What was asked, and what that cost."""
        return self.cache.ledger

    def ask(self, prompt: Prompt[T], values: Values, *, tries: int = TRIES) -> T | Fallback:
        """Return what `answer` does, to code that is not asynchronous."""
        job = self.answer(prompt, values, tries=tries)
        return self.gather([job])[0]

    async def answer(self, prompt: Prompt[T], values: Values, *, tries: int = TRIES) -> T | Fallback:
        """Return the first answer of a few that can be read; else a fallback, which `fallbacks` counts.

        What does not fit the model is asked with its longest texts cut, about by half each time. To be
        awaited within `gather`. Of `tries` questions, at least 1, each names what was wrong before.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        said = await self._shortened(prompt, values, await self._answer(prompt, values, tries), tries)
        if isinstance(said, Fallback):
            self.fell_back(prompt, said)
        return said

    async def answer_parts(
        self, prompt: Prompt[T], part: P, values: Callable[[P], Values],
        halves: Callable[[P, Fallback], Sequence[P]], *, tries: int = TRIES,
    ) -> list[tuple[P, T | Fallback]]:  # fmt: skip
        """Return the answer about something, or else those about its halves, down to what cannot be halved.

        Fallbacks are not counted. A spent budget, or a server that does not answer, is no reason to halve.
        What cannot be halved and does not fit is shortened, as `answer` does. `halves` cuts a part that had
        this fallback, and returns nothing for one that cannot be cut.
        """
        said = await self._answer(prompt, values(part), tries)
        parts = halves(part, said) if isinstance(said, Fallback) and not said.early else ()
        if not parts:
            return [(part, await self._shortened(prompt, values(part), said, tries))]
        jobs = (self.answer_parts(prompt, half, values, halves, tries=tries) for half in parts)
        return [one for found in await asyncio.gather(*jobs) for one in found]

    async def _shortened(
        self, prompt: Prompt[T], values: Values, said: T | Fallback, tries: int
    ) -> T | Fallback:
        while isinstance(said, Fallback) and said.too_long and not prompt.whole:
            if (cut := shorter(values)) is None:
                break
            self.ledger.counts["shortened"] += 1
            values, said = cut, await self._answer(prompt, cut, tries)
        return said

    async def _answer(self, prompt: Prompt[T], values: Values, tries: int) -> T | Fallback:
        complaint: str | None = None
        for number in range(tries):
            question = prompt.question(values, values.sampling or self.sampling, number, complaint)
            last = number == tries - 1
            read = functools.partial(prompt.read, known=values.known, last=last)
            try:
                return await self.cache.ask(question, read)
            except Rejected as rejection:
                if rejection.final or last:
                    return failure_of(rejection)
                complaint = rejection.reason
            except (BudgetSpent, LlmRefused, LlmUnavailable) as failure:
                return failure_of(failure)
        raise ValueError(f"tries must be at least 1, got {tries}")

    def gather(self, jobs: Iterable[Coroutine[Any, Any, T]], report: Report | None = None) -> list[T]:
        """Return the results of coroutines that ask, in their order; the first error ends the others."""
        waiting = list(jobs)
        return run_blocking(self._gathered(waiting, report)) if waiting else []

    async def _gathered(self, jobs: Sequence[Coroutine[Any, Any, T]], report: Report | None) -> list[T]:
        done = 0

        async def work(job: Coroutine[Any, Any, T]) -> T:
            nonlocal done
            found = await job
            done += 1
            if report is not None:
                report(done, len(jobs))
            return found

        try:
            async with self.cache.opened(), asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(job)) for job in jobs]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def fell_back(self, prompt: Prompt[Any], why: Fallback | str, count: int = 1) -> None:
        """Count answers to a prompt that were not used, and why."""
        reason = why if isinstance(why, str) else why.reason
        said = "malformed" if reason == "rejected" else reason  # the name that reports have
        self.fallbacks[f"{prompt.name}: {said}"] += count

    @property
    def unfinished(self) -> bool:
        """Whether a later run may get what is missing."""
        return any(why.endswith(tuple(f": {reason}" for reason in EARLY)) for why in self.fallbacks)

    def told(self) -> str:
        """Return why there was no answer, and how often; empty if there always was one."""
        return ", ".join(f"{count} x {why}" for why, count in sorted(self.fallbacks.items()))

    def report(self) -> dict[str, Any]:
        """Return the model's name, the fallbacks, and what was asked, as `Ledger.report` has it."""
        fallbacks = dict(sorted(self.fallbacks.items()))
        return {"model": self.model, "fallbacks": fallbacks, **self.ledger.report()}


def if_too_long(part: Sequence[P], why: Fallback) -> list[Sequence[P]]:
    """Return the halves of what did not fit the model; nothing where that was not the reason."""
    return halves_of(part) if why.too_long else []


def halves_of(part: Sequence[P]) -> list[Sequence[P]]:
    """Return the halves of a list, the first no shorter; nothing of one thing alone."""
    middle = (len(part) + 1) // 2
    return [part[:middle], part[middle:]] if len(part) > 1 else []


def failure_of(failure: Exception) -> Fallback:
    """Return what stands for an answer whose question failed so."""
    match failure:
        case Rejected():
            return Fallback("rejected", failure.reason, failure.final)
        case ContextOverflow():
            return Fallback("refused", str(failure), too_long=True)
        case LlmRefused():
            return Fallback("refused", str(failure))
        case BudgetSpent():
            return Fallback("budget", str(failure))
    return Fallback("unavailable", str(failure))


@contextmanager
def open_llm(
    root: Root, options: LlmOptions, *, ledger: Ledger | None = None, slot: Slot = nullcontext
) -> Iterator[Llm]:
    """Hold an LLM whose answers are kept below a root, as is what its server takes.

    `ledger` is the account of the run, None: one that begins here; `slot` is entered around each question, a
    limit across processes.

    Raises:
        StorageError: The answers kept cannot be read.
    """
    ledger = ledger or Ledger(options.prices, options.ceiling)
    with Answers(root) as answers:
        yield Llm(open_cache(options.endpoint, answers, ledger, slot=slot), options.sampling)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result to code that is not asynchronous, be there a running event loop or not."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
