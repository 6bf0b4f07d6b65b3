"""The responses of HTTP servers: an answer's JSON, its rate limits, and the error that a refusal means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from yarl import URL

from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.models.retry import LONGEST_WAIT, retry_after

ERROR_BYTES = 4096  # of a body, that an error carries
_EPOCH_FROM = 1e9  # a smaller number is no time since 1970 but a number of seconds from now
# "dmca" as a word of its own, since it may be a part of a repository's name.
_DMCA = re.compile(rb"(?<![\w/.-])dmca(?![\w/-])", re.IGNORECASE)
_RATE_LIMIT = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)
_PAGE = re.compile(rb"\s*(<!doctype html|<html\b)", re.IGNORECASE)
_TERMINAL = {401: "unauthorised", 404: "missing", 410: "missing", 451: "withdrawn"}
_TRANSIENT = {408: "timeout", 425: "server", 429: "rate-limited"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of status 200, a redirect, or the 304 that was asked for."""

    url: str  # after redirects, without the query
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""  # unpacked; empty for redirects, 304 and downloads

    def json(self) -> Any:  # noqa: ANN401
        """Return the body's JSON value.

        Raises:
            HttpTerminal: `html` if the body is a page for people, `not-json` if it is anything else.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            page = is_page(self.headers, self.body)
            reason, found = ("html", "a page for people") if page else ("not-json", "something else")
            raise self.error(reason, f"JSON was expected, {found} came") from None

    def error(self, reason: str, detail: str) -> HttpTerminal:
        """Return the error of an answer whose body is not what was expected."""
        return HttpTerminal(
            reason, self.url, detail, status=self.status, body=self.body[:ERROR_BYTES], headers=self.headers
        )


@dataclass(frozen=True, slots=True)
class RateLimits:
    """A server's word on its rate limits; None: it did not say."""

    left: int | None = None  # requests left until `reset` (`x-ratelimit-remaining`)
    reset: datetime | None = None  # when there are new ones (`x-ratelimit-reset`)
    left_today: int | None = None  # requests left until midnight UTC (`x-ratelimit-daily-remaining`)
    left_this_minute: int | None = None  # (`x-ratelimit-minute-remaining`)
    retry_after: float | None = None  # seconds to wait before the next request (`retry-after`)


def read_limits(headers: Mapping[str, str], now: datetime) -> RateLimits:
    """Return the rate limits in an answer's headers, names in lower case; unreadable ones are absent."""
    reset: float | None = _count(headers.get("x-ratelimit-reset"))
    if reset is not None and reset >= _EPOCH_FROM:
        reset = reset - now.timestamp()
    return RateLimits(
        left=_count(headers.get("x-ratelimit-remaining")),
        reset=None if reset is None else now + timedelta(seconds=min(max(reset, 0.0), LONGEST_WAIT)),
        left_today=_count(headers.get("x-ratelimit-daily-remaining")),
        left_this_minute=_count(headers.get("x-ratelimit-minute-remaining")),
        retry_after=retry_after(headers, now),
    )


def _count(value: str | None) -> int | None:
    text = (value or "").strip()
    return int(text[:15]) if text.isascii() and text.isdigit() else None


def is_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Tell whether an answer is an HTML page; names of `headers` are in lower case."""
    return headers.get("content-type", "").lower().startswith("text/html") or bool(_PAGE.match(body))


def failure_of(
    url: URL, status: int, headers: Mapping[str, str], body: bytes, limits: RateLimits
) -> HttpTerminal | HttpTransient:
    """Return the error that a refusing answer means: one that is no 200, no redirect, no expected 304.

    Args:
        url: The URL asked for.
        status: The answer's status.
        headers: Its headers, names in lower case.
        body: The start of its body.
        limits: Its rate limits.
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
    """Return `error.code` of a JSON body; None if there is none."""
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
    """Return the server's own words on one line, if its body is data."""
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
