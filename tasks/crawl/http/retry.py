"""The retry policy of requests: which errors, how many times, after how many seconds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from storage.errors import WrongInput
from tasks.crawl.http.errors import HttpTransient, QuotaExhausted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to ask again.

    Try n is followed by a wait of `min(wait_max, wait_min * 2**(n - 1) * (1 + r))` seconds, r drawn evenly
    from [0, 1), unless the server said how long to wait.

    Args:
        tries: Requests in all, at least 1.
        wait_min: The least first wait, seconds.
        wait_max: The longest wait, seconds; 0 switches waiting off.
        statuses: Answers after which to ask again; 403 where it is a rate limit and no refusal.
        reasons: Failures without a status after which to ask again.
        server_wait_max: A server that asks for a longer wait than this, in seconds, is given up for now.

    Raises:
        WrongInput: A number is out of its range.
    """

    tries: int = 3
    wait_min: float = 1.0
    wait_max: float = 10.0
    statuses: frozenset[int] = frozenset({403, 408, 425, 429, 500, 502, 503, 504})
    reasons: frozenset[str] = frozenset({"timeout", "connection"})
    server_wait_max: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.wait_min, self.wait_max, self.server_wait_max) < 0:
            msg = f"{self}: tries must be at least 1, and waits no less than 0 seconds"
            raise WrongInput(msg)

    def again(self, failure: BaseException) -> bool:
        """Tell whether a request that failed so is worth another try now."""
        if not isinstance(failure, HttpTransient) or isinstance(failure, QuotaExhausted):
            return False
        if failure.wait is not None and failure.wait > self.server_wait_max:
            return False
        if failure.status is None:
            return failure.reason in self.reasons
        return failure.status in self.statuses

    def backoff(self, tried: int, draw: float) -> float:
        """Return the seconds to wait after try `tried` (from 1), for a number `draw` in [0, 1)."""
        return min(self.wait_max, self.wait_min * 2.0 ** (tried - 1) * (1.0 + draw))


def retrying(
    policy: RetryPolicy, *, sleep: Callable[[float], Awaitable[None]], random: Callable[[], float]
) -> AsyncRetrying:
    """Return what calls a request until it succeeds or the policy gives up; the last failure is raised."""

    def wait(state: RetryCallState) -> float:
        failure = _failure(state)
        # What the server asked for is in the quota book, where all requests to the host wait for it.
        told = isinstance(failure, HttpTransient) and failure.wait is not None
        return 0.0 if told else policy.backoff(state.attempt_number, random())

    return AsyncRetrying(
        sleep=sleep,
        stop=stop_after_attempt(policy.tries),
        wait=wait,
        retry=retry_if_exception(policy.again),
        before_sleep=_log_retry,
        reraise=True,
    )


def _failure(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _log_retry(state: RetryCallState) -> None:
    failure = _failure(state)
    if isinstance(failure, HttpTransient):
        log.info("%s: %s, try %d failed; trying again", failure.url, failure.reason, state.attempt_number)
