"""What a server says of its limits, read off an answer's headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST_PAUSE = timedelta(days=1)
"""What a server asks for beyond this is not believed: it would stop the source for good."""

_EPOCH_FROM = 1e9  # less than this is no time since 1970 but a number of seconds from now


@dataclass(frozen=True, slots=True)
class Limits:
    """A server's word on its limits; None: it did not say.

    Args:
        left: Requests left until `reset` (`x-ratelimit-remaining`).
        reset: When there are new ones (`x-ratelimit-reset`).
        left_today: Requests left until midnight UTC (`X-RateLimit-Daily-Remaining`).
        left_this_minute: Requests left in this minute (`X-RateLimit-Minute-Remaining`).
        retry_after: Seconds to wait before the next request, at least 0 (`Retry-After`).
    """

    left: int | None = None
    reset: datetime | None = None
    left_today: int | None = None
    left_this_minute: int | None = None
    retry_after: float | None = None


def read_limits(headers: Mapping[str, str], now: datetime) -> Limits:
    """Return what the headers, names in lower case, say at the time `now`; nonsense counts as silence."""
    return Limits(
        left=_count(headers.get("x-ratelimit-remaining")),
        reset=_reset(headers.get("x-ratelimit-reset"), now),
        left_today=_count(headers.get("x-ratelimit-daily-remaining")),
        left_this_minute=_count(headers.get("x-ratelimit-minute-remaining")),
        retry_after=_retry_after(headers.get("retry-after"), now),
    )


def _count(value: str | None) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: str | None) -> float | None:
    text = (value or "").strip()
    return float(text[:15]) if text.isascii() and text.isdigit() else None


def _reset(value: str | None, now: datetime) -> datetime | None:
    number = _number(value)
    if number is None:
        return None
    seconds = number - now.timestamp() if number >= _EPOCH_FROM else number
    return now + _bounded(seconds)


def _retry_after(value: str | None, now: datetime) -> float | None:
    number = _number(value)
    if number is not None:
        return _bounded(number).total_seconds()
    try:
        date = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
    return _bounded((date - now).total_seconds()).total_seconds()


def _bounded(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_PAUSE.total_seconds()))
