"""The responses of HTTP servers: an answer with its body, or the error that a refusal means."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from yarl import URL

from storage.errors import SkilleryError, TerminalError, TransientError
from tasks.models.fields import mapping_of
from tasks.models.http_body import BodyRefused, unpacked
from tasks.models.retry import LONGEST_WAIT, retry_after

if TYPE_CHECKING:  # its import takes twentieths of a night that asks no server
    import aiohttp

_PRIVATE_HEADERS = frozenset({"location", "set-cookie"})  # they may hold credentials of others
ERROR_BYTES = 4096  # of a body, that an error carries
_EPOCH_FROM = 1e9  # a smaller number is no time since 1970 but a number of seconds from now
# "dmca" as a word of its own, since it may be a part of a repository's name.
_DMCA = re.compile(rb"(?<![\w/.-])dmca(?![\w/-])", re.IGNORECASE)
_RATE_LIMIT = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
_PAGE = re.compile(rb"\A\s*+(<!doctype html|<html\b)", re.IGNORECASE)
_TERMINAL = {401: "unauthorised", 404: "missing", 410: "missing", 451: "withdrawn"}
_TRANSIENT = {408: "timeout", 425: "server", 429: "rate-limited"}


def shown(url: str | URL) -> str:
    """Return a URL for messages and logs: without user, password, query and fragment."""
    try:
        return str(URL(url).with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return str(url).partition("?")[0].rpartition("@")[2]


def host_of(url: URL) -> str:
    """Return `host`, or `host:port` if the port is not the scheme's own, in lower case."""
    host = url.host_subcomponent or ""
    return host.lower() if url.is_default_port() else f"{host.lower()}:{url.port}"


class HttpFailed(SkilleryError):
    """A request without the answer that was hoped for.

    `reason` is a short stable code; `url` is shown without its query; `status` is that of the answer, None if
    there was none, or if another thing went wrong; `body` holds the first 4 KB of the answer; names of
    `headers` are in lower case.
    """

    def __init__(
        self, reason: str, url: str | URL, detail: str, *, status: int | None = None, body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.reason, self.url, self.detail = reason, shown(url), detail
        self.status, self.body = status, body
        kept = {name: value for name, value in (headers or {}).items() if name not in _PRIVATE_HEADERS}
        self.headers: Mapping[str, str] = MappingProxyType(kept)
        super().__init__(f"{self.url}: {detail}")


class HttpTerminal(HttpFailed, TerminalError):
    """A failure that another request cannot mend.

    Reasons: `missing` (404, 410), `unauthorised` (401), `denied` (403), `withdrawn` (451, or a 403 that names
    the DMCA), `html` (a page for people where data was expected), `not-json`, `too-large`, `redirect` (to a
    host that is not allowed), `refused` (anything else).
    """


class HttpTransient(HttpFailed, TransientError):
    """A failure that a later request may not meet.

    Reasons: `rate-limited`, `server` (5xx), `timeout`, `connection` (none, cut, or a damaged body), `quota`.
    `wait` is the wait that the server asked for, in seconds; None if it asked for none.
    """

    wait: float | None = None


class QuotaExhausted(HttpTransient):
    """A host's quota is used up, by our count or by the host's word.

    `until` is the time at which the host answers again; None if it is not known.
    """

    def __init__(self, url: str | URL, until: datetime | None, *, failed: HttpFailed | None = None) -> None:
        ends = f"until {until:%Y-%m-%d %H:%M} UTC" if until else "for now"
        super().__init__(
            "quota", url, f"the host's quota is used up {ends}", status=failed.status if failed else None,
            body=failed.body if failed else b"", headers=failed.headers if failed else None,
        )  # fmt: skip
        self.until = until


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of status 200, a redirect, or the 304 that was asked for."""

    url: str  # after redirects, without the query
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""  # unpacked; empty for redirects, 304 and downloads

    def json(self) -> Any:  # noqa: ANN401
        """Return the body's JSON value, or raise HttpTerminal: `html` (a page for people) or `not-json`."""
        try:
            return load_json(self.body)
        except (ValueError, RecursionError):
            page = is_page(self.headers, self.body)
            reason, found = ("html", "a page for people") if page else ("not-json", "something else")
            raise self.error(reason, f"JSON was expected, {found} came") from None

    def error(self, reason: str, detail: str) -> HttpTerminal:
        """Return the error of an answer whose body is not what was expected."""
        return HttpTerminal(
            reason, self.url, detail, status=self.status, body=self.body[:ERROR_BYTES], headers=self.headers
        )


def load_json(content: bytes) -> Any:  # noqa: ANN401
    """Return a JSON value; halves of surrogate pairs, which no file can hold, are question marks in it.

    Raises ValueError and RecursionError.
    """
    text = content.decode("utf-8-sig")
    value = json.loads(text)
    if _HALVES.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


@dataclass(frozen=True, slots=True)
class RateLimits:
    """A server's word on its rate limits; None: it did not say."""

    left: int | None = None  # requests left until `reset` (`x-ratelimit-remaining`)
    reset: datetime | None = None  # when there are new ones (`x-ratelimit-reset`)
    left_today: int | None = None  # requests left until midnight UTC (`x-ratelimit-daily-remaining`)
    left_this_minute: int | None = None  # (`x-ratelimit-minute-remaining`)
    retry_after: float | None = None  # seconds to wait before the next request (`retry-after`)


def read_limits(headers: Mapping[str, str], now: datetime) -> RateLimits:
    """Return the rate limits in an answer's headers, names in lower case; unreadable ones are absent.

    Those without `x-` are read too, where a server sends them alone.
    """
    reset: float | None = _either(headers, "ratelimit-reset")
    if reset is not None and reset >= _EPOCH_FROM:
        reset = reset - now.timestamp()
    return RateLimits(
        left=_either(headers, "ratelimit-remaining"),
        reset=None if reset is None else now + timedelta(seconds=min(max(reset, 0.0), LONGEST_WAIT)),
        left_today=_count(headers.get("x-ratelimit-daily-remaining")),
        left_this_minute=_count(headers.get("x-ratelimit-minute-remaining")),
        retry_after=retry_after(headers, now),
    )


def _either(headers: Mapping[str, str], name: str) -> int | None:
    return _count(headers.get(f"x-{name}") or headers.get(name))


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

    Names of `headers` are in lower case; `body` is the start of its body.
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
    code = mapping_of(json_object(body).get("error")).get("code")
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
    record = json_object(body)
    error = mapping_of(record.get("error"))
    message = error.get("message") or error.get("code") or record.get("message")
    words = "".join(c for c in " ".join(str(message or "").split()) if c.isprintable())
    return f": {words[:200]}" if words else ""


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that bytes are; an empty one for any others."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def web_url(url: str) -> URL:
    """Return an absolute http or https URL without a fragment; one with credentials raises HttpTerminal."""
    try:
        found = URL(url).with_fragment(None)
        usable = found.scheme in {"http", "https"} and bool(found.host) and found.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise HttpTerminal("refused", url, "this is no http:// or https:// URL")
    if found.user is not None or found.password is not None:
        raise HttpTerminal("refused", url, "credentials in a URL are not sent: take them out")
    return found


async def read_body(response: aiohttp.ClientResponse, sink: BinaryIO, *, max_bytes: int) -> None:
    """Write the body of an answer, unpacked here, into `sink`; bytes written before an error stay there.

    The largest body, both announced and unpacked, has `max_bytes`.

    Raises:
        HttpTerminal: `too-large`, or `refused` if the encoding was not asked for.
        HttpTransient: `connection`: the body ends too early or is damaged.
        aiohttp.ClientError, TimeoutError: The connection failed.
    """
    try:
        async with contextlib.aclosing(_pieces(response, max_bytes)) as pieces:
            async for piece in pieces:
                sink.write(piece)
    except BodyRefused as refused:
        kind = HttpTransient if refused.reason == "connection" else HttpTerminal
        status = None if refused.reason == "connection" else response.status
        raise kind(refused.reason, response.url, refused.detail, status=status) from None


async def read_start(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Return the first `size` unpacked bytes of a body, or fewer if the body ends or breaks off earlier."""
    import aiohttp  # noqa: PLC0415 (as above)

    start = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, BodyRefused):
        async with contextlib.aclosing(_pieces(response, sys.maxsize)) as pieces:
            async for piece in pieces:
                start += piece
                if len(start) >= size:
                    # Closed, since reading the rest would only serve to keep the connection.
                    response.close()
                    break
    return start[:size]


def _pieces(response: aiohttp.ClientResponse, most: int) -> AsyncGenerator[bytes, None]:
    return unpacked(response.content.iter_any(), response.headers, most)
