"""The application in which runs of pages are replayed: its address, its reset, and a digest of its state."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

RESET, STATE = "/.skillery/reset", "/.skillery/state"
_HOST = re.compile(r"[\w.:-]+")
_SECONDS, _MOST_BYTES = 10.0, 8 << 20  # of one answer
_SLACK = 90.0  # seconds: what is stamped may be written to the minute, or by a clock that is a little off
_LATEST = 1e15  # milliseconds since 1970; what is more, a number of any size, is no time
_DATE = len("2026-01-31")


class ApplicationUnusable(Exception):
    """The application cannot be used; the text says why."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class WebApplication:
    """An application that is reset by `POST /.skillery/reset`, and says its state at `GET /.skillery/state`.

    Args:
        url: The address of its first page; both paths are those of the same host and port.

    Raises:
        ApplicationUnusable: The address is none of a web application; or, of both methods, it gives no answer
            of a status of 200 to 299, or no JSON.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self.host = (parts.port, parts.hostname or "")[1]
        except ValueError:
            self.host = ""
        if not self.host or parts.scheme not in {"http", "https"} or not _HOST.fullmatch(self.host):
            msg = f"{url!r}: give the address of a web application, as http://127.0.0.1:8000/"
            raise ApplicationUnusable(msg)
        self.url, self._began = url, 0.0
        self._opener = build_opener(ProxyHandler({}), _NoRedirects)

    def reset(self) -> None:
        """Set the application back to where every run begins."""
        self._began = time.time()
        self._ask("POST", RESET)

    def digest(self) -> str:
        """Return a digest of its state, with `time` for the times of the run since the reset."""
        try:
            state = without_times(json.loads(self._ask("GET", STATE)), self._began, time.time())
        except (ValueError, RecursionError):
            msg = f"{self.url}: GET {STATE} must answer with JSON"
            raise ApplicationUnusable(msg) from None
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()

    def _ask(self, method: str, path: str) -> bytes:
        asked = Request(urljoin(self.url, path), b"" if method == "POST" else None, method=method)  # noqa: S310
        try:
            with self._opener.open(asked, timeout=_SECONDS) as answer:
                body = bytes(answer.read(_MOST_BYTES + 1))
        except HTTPError as error:
            said = f"answers {method} {path} with {error.code}; tasks/induce/README.md says what it must"
            raise ApplicationUnusable(f"{self.url} {said}") from None
        except OSError as error:
            msg = f"{self.url} does not answer {method} {path}: {error}; start it first"
            raise ApplicationUnusable(msg) from None
        if len(body) > _MOST_BYTES:
            msg = f"{self.url} answers with more than {_MOST_BYTES:,} bytes"
            raise ApplicationUnusable(msg)
        return body


def without_times(value: Any, begin: float, end: float) -> Any:  # noqa: ANN401
    """Return a value of JSON with `time` for each time at which a run took place.

    A time is a text of ISO 8601 with a date and an hour, or a number of seconds or milliseconds since 1970,
    that lies in the run, give or take 90 s. Other times are data: a date that somebody chose is what a run
    must do again.
    """
    if isinstance(value, dict):
        return {name: without_times(each, begin, end) for name, each in value.items()}
    if isinstance(value, list):
        return [without_times(each, begin, end) for each in value]
    is_of_run = any(begin - _SLACK <= time <= end + _SLACK for time in _times(value))
    return "time" if is_of_run else value


def _times(value: object) -> Iterator[float]:
    """Yield what a value may be as a time, in seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST:
        yield from (value, value / 1000)
    if not isinstance(value, str) or len(value) <= _DATE:
        return
    try:
        time = datetime.fromisoformat(value)
        # One that names no zone may be of this machine's, or of none.
        yield from (time.timestamp(), time.replace(tzinfo=time.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError):
        return
