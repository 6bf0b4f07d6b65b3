"""What a refusing answer means: its status, headers and start of body, told as one of our errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from yarl import URL

from tasks.crawl.http_errors import HttpTerminal, HttpTransient
from tasks.crawl.rate_headers import Limits

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
    url: URL, status: int, headers: Mapping[str, str], body: bytes, limits: Limits
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


def _forbidden(headers: Mapping[str, str], body: bytes, limits: Limits) -> str:
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
