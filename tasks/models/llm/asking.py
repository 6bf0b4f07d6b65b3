"""Asking: a question is asked again, its error named, until the answer passes its check."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.errors import Rejected
from tasks.models.llm.question import Question

T = TypeVar("T")
TRIES = 3

"""Requests for one answer, as in SkillPager, section 4.1."""


async def ask_until_right(
    book: AnswerCache,
    question: Callable[[int, str | None], Question],
    check: Callable[[int], Callable[[str], T]],
    *,
    tries: int = TRIES,
) -> T:
    """Return the first answer that passes its check.

    Args:
        book: Asks, and keeps the answers, so that no question is sent twice.
        question: Makes the question of a try, from 0, given what was wrong with the answer before it.
        check: Makes the check of a try.
        tries: At least 1.

    Raises:
        Rejected: The last answer failed too, or asking the same again is useless.
        BudgetSpent, LlmDenied, LlmRefused, LlmUnavailable: As `AnswerCache.ask`.
    """
    complaint: str | None = None
    for attempt in range(tries):
        try:
            return await book.ask(question(attempt, complaint), check(attempt))
        except Rejected as rejection:
            if rejection.final or attempt == tries - 1:
                raise
            complaint = rejection.reason
    msg = f"tries must be at least 1, got {tries}"
    raise ValueError(msg)


async def together(jobs: Iterable[Coroutine[None, None, None]]) -> None:
    """Await all; the first error ends the others, and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
