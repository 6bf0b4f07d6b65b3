"""Asks an LLM: kept answers first, again with the error named, else a fallback, all of it counted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from storage.answers import Answers
from storage.root import Root
from tasks.models.llm.answer_cache import AnswerCache, open_cache
from tasks.models.llm.budget import Ceiling, Ledger, Prices
from tasks.models.llm.client import Endpoint
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.prompt import Prompt, Values, shorter
from tasks.models.llm.question import Sampling

T = TypeVar("T")
P = TypeVar("P")
Report = Callable[[int, int], None]  # is told how many are done, and of how many
Slot = Callable[[], AbstractAsyncContextManager[object]]
TRIES = 3  # requests for one answer, as in SkillPager, section 4.1
# The reasons for which asking ended early: a later run may ask about what they left.
EARLY = ("budget", "unavailable")


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
