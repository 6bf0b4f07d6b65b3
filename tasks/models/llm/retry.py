"""The retry policy of questions: which errors, how many times, after how many seconds."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from storage.errors import SkilleryError, WrongInput
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmDenied, LlmRefused, LlmUnavailable


@dataclass(frozen=True, slots=True)
class LlmRetryPolicy:
    """When to send a question again that got no answer.

    Try n is followed by a wait of `min(wait_max, wait_min * 2**(n - 1) * (1 + r))` seconds, r drawn evenly
    from [0, 1), or by what the server asked for if that is more.

    Args:
        tries: Requests in all, at least 1.
        wait_min: The least first wait, seconds.
        wait_max: The longest wait of our own, seconds; 0 switches waiting off.
        server_wait_max: A server that asks for a longer wait than this, in seconds, is given up.

    Raises:
        WrongInput: A number is out of its range.
    """

    tries: int = 5
    wait_min: float = 1.0
    wait_max: float = 30.0
    server_wait_max: float = 120.0

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.wait_min, self.wait_max, self.server_wait_max) < 0:
            msg = f"{self}: tries must be at least 1, and waits no less than 0 seconds"
            raise WrongInput(msg)

    def again(self, failure: BaseException) -> bool:
        """Tell whether a failure is one after which to ask again."""
        if not isinstance(failure, LlmUnavailable):
            return False
        return (failure.retry_after or 0.0) <= self.server_wait_max

    def wait(self, tries: int, asked: float | None, random: float) -> float:
        """Return the seconds to wait after a try; `asked` is the server's word, `random` in [0, 1)."""
        own = min(self.wait_max, self.wait_min * 2.0 ** (tries - 1) * (1 + random))
        return own if asked is None else max(own, asked)


def retrying(
    policy: LlmRetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
    before: Callable[[], None],
) -> AsyncRetrying:
    """Return the loop of tries, which raises the last failure itself; `before` is called before each wait."""

    def wait(state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        asked = failure.retry_after if isinstance(failure, LlmUnavailable) else None
        return policy.wait(state.attempt_number, asked, random())

    return AsyncRetrying(
        stop=stop_after_attempt(policy.tries),
        retry=retry_if_exception(policy.again),
        wait=wait,
        sleep=sleep,
        before_sleep=lambda _: before(),
        reraise=True,
    )


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds that a server asks to wait, at least 0; None: it does not say, or says nonsense.

    Args:
        headers: `retry-after-ms` goes before `retry-after`, which holds seconds or an HTTP date.
        now: An aware time.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
    return max((date - now).total_seconds(), 0.0)


def _number(value: str | None) -> float | None:
    text = (value or "").strip()
    digits = text.replace(".", "", 1)
    return float(text[:15]) if digits.isascii() and digits.isdigit() else None


_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:context|input|sequence)|too many (?:input )?tokens"
    r"|(?:prompt|input|request|message)s?(?: is| are)? too (?:long|large)|reduce the length"
    r"|exceeds? the model",
    re.IGNORECASE,
)
_EMPTY_ACCOUNT = ("insufficient_quota", "insufficient balance", "billing_hard_limit", "billing hard limit")
_REFUSALS = frozenset({400, 413, 422})


def of_status(status: int, headers: Mapping[str, str], body: str, now: datetime) -> SkilleryError:
    """Return the error that an answer with a status of 400 or above stands for.

    Args:
        status: The HTTP status.
        headers: Names in any case that the mapping folds.
        body: The server's words, any credential hidden.
        now: For a `Retry-After` that is a date.
    """
    said = f"status {status}: {' '.join(body.split())[:300]}"
    if status in (401, 403):
        return LlmDenied(f"the LLM server denies access ({said}): check SKILLERY_LLM_API_KEY")
    if status == 404:
        settings = "SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL"
        return LlmDenied(f"the LLM server has no such path or model ({said}): check {settings}")
    if status == 402 or (status == 429 and any(words in body.lower() for words in _EMPTY_ACCOUNT)):
        return BudgetSpent(f"the LLM server says that the account is empty ({said})")
    if (status in _REFUSALS or status >= 500) and _TOO_LONG.search(body):
        return ContextOverflow(f"too long for the model ({said})")
    if status in (408, 409, 425, 429) or status >= 500:
        reason = "rate-limited" if status == 429 else "server"
        return LlmUnavailable(reason, said, retry_after=retry_after(headers, now))
    return LlmRefused(f"the LLM server refuses the question ({said})")
