"""The retry of questions to an LLM: which failures are worth another try."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from storage.errors import SkilleryError
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmDenied, LlmRefused, LlmUnavailable
from tasks.models.retry import RetryPolicy, retry_after, retrying

if TYPE_CHECKING:  # a query has no use for it
    from tenacity import AsyncRetrying

# More patient than crawling: an answer takes a model minutes, and its server queues questions.
LLM_RETRY = RetryPolicy(tries=5, wait_min=1.0, wait_max=30.0, server_wait_max=120.0)
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:context|input|sequence)|too many (?:input )?tokens"
    r"|(?:prompt|input|request|message)s?(?: is| are)? too (?:long|large)|reduce the length"
    r"|exceeds? the model",
    re.IGNORECASE,
)
_EMPTY_ACCOUNT = re.compile(
    r"insufficient_quota|insufficient balance|billing_hard_limit|billing hard limit", re.IGNORECASE
)
_DENIALS = {
    401: "denies access ({}): check SKILLERY_LLM_API_KEY",
    403: "denies access ({}): check SKILLERY_LLM_API_KEY",
    404: "has no such path or model ({}): check SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL",
}


def retry_questions(
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
    before: Callable[[], None],
) -> AsyncRetrying:
    """Return the loop of tries of one question; `before` is called before each wait.

    A wait is the policy's backoff, or what the server asks for if that is longer.
    """
    return retrying(
        policy,
        again=lambda failure: is_passing(failure, policy),
        wait=lambda failure, own: max(own, getattr(failure, "retry_after", None) or 0.0),
        before_sleep=lambda _failure, _tried: before(),
        sleep=sleep,
        random=random,
    )


def is_passing(failure: BaseException | None, policy: RetryPolicy) -> bool:
    """Tell whether another try may help, after a wait that the policy accepts."""
    return isinstance(failure, LlmUnavailable) and policy.accepts(failure.retry_after)


def of_status(status: int, headers: Mapping[str, str], body: str, now: datetime) -> SkilleryError:
    """Return the error that an answer with a status of 400 or above stands for.

    `body` is the server's words, any credential hidden; `now` the time, for a `Retry-After` that is a date.
    """
    said = f"status {status}: {' '.join(body.split())[:300]}"
    if status in _DENIALS:
        return LlmDenied(f"the LLM server {_DENIALS[status].format(said)}")
    if status == 402 or (status == 429 and _EMPTY_ACCOUNT.search(body)):
        return BudgetSpent(f"the LLM server says that the account is empty ({said})")
    fault_of_server = status >= 500
    if (fault_of_server or status in {400, 413, 422}) and _TOO_LONG.search(body):
        return ContextOverflow(f"too long for the model ({said})")
    if fault_of_server or status in {408, 409, 425, 429}:
        reason = "rate-limited" if status == 429 else "server"
        return LlmUnavailable(reason, said, retry_after=retry_after(headers, now))
    return LlmRefused(f"the LLM server refuses the question ({said})")
