"""Responses that refuse: their status, headers and start of body, translated to one of our errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from yarl import URL

from tasks.crawl.http.errors import HttpTerminal, HttpTransient

LONGEST_PAUSE = timedelta(days=1)

"""What a server asks for beyond this is not believed: it would stop the source for good."""

_EPOCH_FROM = 1e9  # less than this is no time since 1970 but a number of seconds from now


@dataclass(frozen=True, slots=True)
class RateLimits:
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


def read_limits(headers: Mapping[str, str], now: datetime) -> RateLimits:
    """Return what the headers, names in lower case, say at the time `now`; nonsense counts as silence."""
    return RateLimits(
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


# Not as a part of a path, which a repository's name may be.
_DMCA = re.compile(rb"(?<![\w/.-])dmca(?![\w/-])", re.IGNORECASE)
_RATE_LIMIT = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)
_PAGE = re.compile(rb"\s*(<!doctype html|<html\b)", re.IGNORECASE)
_TERMINAL = {401: "unauthorised", 404: "missing", 410: "missing", 451: "withdrawn"}
_TRANSIENT = {408: "timeout", 425: "server", 429: "rate-limited"}


def is_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Tell whether an answer is an HTML page; names of `headers` are in lower case."""
    return headers.get("content-type", "").lower().startswith("text/html") or bool(_PAGE.match(body))


def failure_of(
    url: URL, status: int, headers: Mapping[str, str], body: bytes, limits: RateLimits
) -> HttpTerminal | HttpTransient:
    """Return the error to raise for an answer that is neither 200, a redirect, nor a 304 that was asked for.

    Args:
        url: What was asked for.
        status: The answer's status.
        headers: Its headers, names in lower case.
        body: Its start.
        limits: What it says of rate limits.
    """
    reason = _forbidden(headers, body, limits) if status == 403 else _TRANSIENT.get(status)
    if status >= 500:
        reason = "server"
    detail = f"HTTP {status}{_words(headers, body)}"
    if reason in {"rate-limited", "server", "timeout"}:
        return HttpTransient(reason, url, detail, status=status, body=body, headers=headers)
    reason = reason or _TERMINAL.get(status, "refused")
    return HttpTerminal(reason, url, detail, status=status, body=body, headers=headers)


def error_code(body: bytes) -> str | None:
    """Return `error.code` of a JSON body, None where it has none."""
    error = _object(body).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else None


def _forbidden(headers: Mapping[str, str], body: bytes, limits: RateLimits) -> str:
    if _DMCA.search(body):
        return "withdrawn"
    if limits.retry_after is not None or limits.left == 0:
        return "rate-limited"
    if is_page(headers, body):
        return "html"
    return "rate-limited" if _RATE_LIMIT.search(body) else "denied"


def _words(headers: Mapping[str, str], body: bytes) -> str:
    """Return what the server says in its own words, on one line, where it says it in data."""
    if is_page(headers, body):
        return " (a page for people)"
    record = _object(body)
    error = record.get("error")
    said = error.get("message") or error.get("code") if isinstance(error, dict) else None
    said = said or record.get("message")
    words = "".join(c for c in " ".join(str(said or "").split()) if c.isprintable())
    return f": {words[:200]}" if words else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
