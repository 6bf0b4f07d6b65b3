from __future__ import annotations

import asyncio

import pytest

from tasks.models.llm.errors import LlmDenied, LlmUnavailable
from tasks.models.llm.retry import is_passing, retry_questions
from tasks.models.retry import RetryPolicy


def test_only_what_may_pass_is_tried_again() -> None:
    policy = RetryPolicy(server_wait_max=10)
    assert is_passing(LlmUnavailable("server", "oops"), policy)
    assert is_passing(LlmUnavailable("rate-limited", "later", retry_after=10), policy)
    assert not is_passing(LlmUnavailable("rate-limited", "tomorrow", retry_after=11), policy)
    assert not is_passing(LlmDenied("no"), policy)
    assert not is_passing(ValueError(), policy)


@pytest.mark.parametrize(("asked", "slept"), [(None, 2.0), (1.0, 2.0), (7.0, 7.0)])
def test_a_wait_is_our_own_or_what_the_server_asks_for_if_that_is_longer(
    asked: float | None, slept: float
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def fail() -> None:
        raise LlmUnavailable("server", "oops", retry_after=asked)

    tries = retry_questions(
        RetryPolicy(tries=2, wait_min=2.0), sleep=sleep, random=lambda: 0.0, before=lambda: None
    )
    with pytest.raises(LlmUnavailable):
        asyncio.run(tries(fail))
    assert waits == [slept]
