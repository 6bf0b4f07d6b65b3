"""The retry policy of requests and of Prefect's tasks: how often a failed one is tried again, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from storage.errors import TransientError, WrongInput

if TYPE_CHECKING:  # a query has no use for it
    from tenacity import AsyncRetrying, RetryCallState

LONGEST_WAIT = 86_400.0  # seconds; a server that asks for more would stop its client for good


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to send a request, and how long to wait between two tries.

    Raises:
        WrongInput: A number is out of its range.
    """

    tries: int = 3  # requests in all, at least 1
    wait_min: float = 1.0  # seconds; the least wait after the first try
    wait_max: float = 10.0  # seconds; the longest wait of our own, 0 switches waiting off
    server_wait_max: float = 60.0  # seconds; a server that asks for a longer wait is given up for now

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.wait_min, self.wait_max, self.server_wait_max) < 0:
            raise WrongInput(f"{self}: tries must be at least 1, and waits no less than 0 seconds")

    def backoff(self, tried: int, draw: float) -> float:
        """Return `min(wait_max, wait_min * 2**(tried - 1) * (1 + draw))`, in seconds.

        Tries are counted from 1; `draw`, in [0, 1), spreads the waits of many clients.
        """
        return min(self.wait_max, self.wait_min * 2.0 ** (tried - 1) * (1.0 + draw))

    def accepts(self, asked: float | None) -> bool:
        """Tell whether a wait that a server asks for, in seconds, is short enough; None: it asks for none."""
        return asked is None or asked <= self.server_wait_max


def retrying(
    policy: RetryPolicy, *, again: Callable[[BaseException | None], bool],
    wait: Callable[[BaseException | None, float], float],
    before_sleep: Callable[[BaseException | None, int], None], sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
) -> AsyncRetrying:  # fmt: skip
    """Return the loop that calls a function until it succeeds, or the policy gives up and raises the failure.

    Args:
        policy: How often, and how long to wait.
        again: Tells whether another try may help after a failure.
        wait: Gets a failure and our own backoff, returns the wait; both in seconds.
        before_sleep: Called before each wait with the failure and the number of the try.
        sleep: Waits, in seconds.
        random: Draws from [0, 1).
    """
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt  # noqa: PLC0415 (as above)

    def failure_of(state: RetryCallState) -> BaseException | None:
        return state.outcome.exception() if state.outcome else None

    return AsyncRetrying(
        stop=stop_after_attempt(policy.tries),
        retry=retry_if_exception(again),
        wait=lambda state: wait(failure_of(state), policy.backoff(state.attempt_number, random())),
        before_sleep=lambda state: before_sleep(failure_of(state), state.attempt_number),
        sleep=sleep,
        reraise=True,
    )


def task_retries(policy: RetryPolicy | None = None) -> dict[str, Any]:
    """Return the arguments of Prefect's `task` with which it repeats what failed for a transient reason.

    A terminal error, or one of no kind of ours, is not repeated.
    """
    policy = policy or RetryPolicy()
    waits = [policy.backoff(tried, draw=0.5) for tried in range(1, policy.tries)]
    return {"retries": len(waits), "retry_delay_seconds": waits, "retry_condition_fn": _is_transient}


def _is_transient(_task: object, _run: object, state: Any) -> bool:  # noqa: ANN401 (Prefect's State)
    try:
        state.result()
    except TransientError:
        return True
    except BaseException:
        return False
    return False


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait that a server asks for, in seconds up to `LONGEST_WAIT`; None: none can be read.

    `retry-after-ms` is read first, then `retry-after`, which is in seconds or an HTTP date.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    seconds = _number(headers.get("retry-after")) if milliseconds is None else milliseconds / 1000
    if seconds is None:
        try:
            date = parsedate_to_datetime(headers.get("retry-after", ""))
        except ValueError:
            return None
        date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
        seconds = (date - now).total_seconds()
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _number(value: str | None) -> float | None:
    text = (value or "").strip()
    digits = text.replace(".", "", 1)
    return float(text[:15]) if digits.isascii() and digits.isdigit() else None
