"""The HTTP client of every source: polite to hosts, bounded in what it reads, careful with credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random as _random
import types
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
from yarl import URL

from storage.errors import StorageError
from tasks.crawl.body import read_body, read_start
from tasks.crawl.bucket import Hold, midnight_after
from tasks.crawl.http_errors import HttpTerminal, HttpTransient, QuotaExhausted, shown
from tasks.crawl.politeness import Politeness, QuotaBook
from tasks.crawl.quota_page import Client
from tasks.crawl.rate_headers import Limits, read_limits
from tasks.crawl.redirects import REDIRECTS, host_of, next_hop, web_url
from tasks.crawl.retry import retrying
from tasks.crawl.secret import Secret
from tasks.crawl.session import open_session
from tasks.crawl.statuses import error_code, failure_of, is_page

_MOST_REDIRECTS = 5
_START = 4096  # of a refusing answer's body
_TICK = 0.001  # seconds; what rounding leaves of a wait is less than clocks can tell


def utc_now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of status 200, or 304 where it was asked for.

    Args:
        url: Where it came from after redirects, without the query.
        status: 200 or 304.
        headers: Names in lower case.
        body: Unpacked; empty for 304 and for downloads.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401
        """Return the body's JSON value.

        Raises:
            HttpTerminal: `html` where it is a page for people, `not-json` where it is anything else.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            page = is_page(self.headers, self.body)
            reason, found = ("html", "a page for people") if page else ("not-json", "something else")
            detail = f"JSON was expected, {found} came"
            raise HttpTerminal(
                reason, self.url, detail, status=self.status, body=self.body[:_START], headers=self.headers
            ) from None


@dataclass(frozen=True, slots=True)
class _Call:
    """One thing to fetch, in as many requests as it takes."""

    url: URL
    headers: Mapping[str, str]
    token: Secret
    etag: str | None
    max_bytes: int
    sink: BinaryIO = field(repr=False)

    def headers_for(self, *, home: bool) -> dict[str, str]:
        """Return the headers of one request; hosts other than the first are told as little as they need."""
        headers = {name: value for name, value in self.headers.items() if home or name.lower() == "accept"}
        if home and self.token:
            headers["Authorization"] = f"Bearer {self.token.reveal()}"
        if home and self.etag is not None:
            headers["If-None-Match"] = self.etag
        return headers


class Http:
    """Fetches what it is asked for, each host at its pace; use it in an `async with` statement, in one loop.

    Args:
        limits: How politely.
        book: Remembers what hosts were asked and said, over restarts.
        clock: The time, UTC.
        sleep: Waits so many seconds; `clock` must go on meanwhile.
        random: Draws evenly from [0, 1).
    """

    def __init__(
        self,
        limits: Politeness,
        book: QuotaBook,
        *,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.requests = 0
        """Requests sent so far, retries and redirects included."""
        self._limits = limits
        self._book = book
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._clients: dict[str, Client] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Http:
        self._session = open_session(
            user_agent=f"skillery/{version('skillery')}",
            connect_timeout=self._limits.connect_timeout,
            timeout=self._limits.timeout,
            sent=lambda host: self._book.sent(host, self._clock()),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: Secret | None = None,
        etag: str | None = None,
        max_bytes: int = 20_000_000,
    ) -> Answer:
        """Return the answer to a GET request.

        Args:
            url: An http or https URL.
            params: Added to its query, encoded.
            headers: Sent along, to the URL's own host only, `Accept` apart.
            token: Sent as a bearer token, to the URL's own host only.
            etag: What the caller has already; where that is still so, the answer is 304 and empty.
            max_bytes: The most the body may be, unpacked.

        Raises:
            HttpTerminal: Asking again cannot help.
            HttpTransient: It did not work now, nor when tried again.
            QuotaExhausted: The host allows no more for now; no request was sent for it, or the last.
        """
        where = web_url(url).update_query(dict(params)) if params else web_url(url)
        body = BytesIO()
        answer = await self._fetch(_Call(where, headers or {}, token or Secret(), etag, max_bytes, body))
        return Answer(answer.url, answer.status, answer.headers, body.getvalue())

    async def download(
        self,
        url: str,
        path: Path,
        *,
        headers: Mapping[str, str] | None = None,
        token: Secret | None = None,
        max_bytes: int = 50_000_000,
    ) -> Answer:
        """Put a body into a file, which appears when it is whole; return the answer without its body.

        Args:
            url: As for `get`, like the others.
            path: The file; its folder is made where there is none.
            headers: Sent along.
            token: Sent as a bearer token.
            max_bytes: The most the file may be.

        Raises:
            HttpTerminal: Asking again cannot help; as for `get`.
            HttpTransient: It did not work now; as for `get`.
            StorageError: The file cannot be written.
        """
        where, asked = web_url(url), {"Accept-Encoding": "identity", **(headers or {})}
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as sink:
                answer = await self._fetch(_Call(where, asked, token or Secret(), None, max_bytes, sink))
            beside.replace(path)
        except OSError as error:
            msg = f"{path} cannot be written ({error.strerror})"
            raise StorageError(msg) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return answer

    def quota_left(self, url: str) -> int | None:
        """Return how many requests the URL's host allows us yet; None: it has set no limit.

        A host that was asked with and without a token is answered for as it was asked last.
        """
        host = host_of(web_url(url))
        client = self._clients.get(host) or self._limits.client(host, None)
        return self._book.left(client, self._clock())

    async def _fetch(self, call: _Call) -> Answer:
        again = retrying(self._limits.retry, sleep=self._sleep, random=self._random)
        return await again(self._follow, call)

    async def _follow(self, call: _Call) -> Answer:
        """Send a request, and where it is redirected, those that follow from it."""
        call.sink.seek(0)
        call.sink.truncate()
        url, home = call.url, True
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._request(call, url, home=home)
            if answer.status not in REDIRECTS:
                return answer
            target = next_hop(url, answer.headers.get("location", ""), self._limits.redirect_hosts)
            # Once away, credentials stay away: another host must not choose what they open.
            url, home = target, home and host_of(target) == host_of(url)
        raise HttpTerminal("redirect", call.url, f"there are more than {_MOST_REDIRECTS} redirects")

    async def _request(self, call: _Call, url: URL, *, home: bool) -> Answer:
        """Send one request when its host's turn comes; the answer may be a redirect."""
        host = host_of(url)
        token = call.token if home else Secret()
        client = self._limits.client(host, token.fingerprint() if token else None)
        self._clients[host] = client
        slots = self._slots.setdefault(host, asyncio.Semaphore(self._limits.concurrency))
        async with slots:
            await self._admit(client, url)
            self.requests += 1
            try:
                return await self._exchange(call, url, client, home=home)
            except TimeoutError:
                most = f"{self._limits.connect_timeout:g} s to connect, {self._limits.timeout:g} s in all"
                failure = HttpTransient("timeout", url, f"no whole answer in time ({most})")
            except aiohttp.ClientError as error:
                failure = HttpTransient("connection", url, f"the exchange broke off ({type(error).__name__})")
        # Raised out here, since what aiohttp says of a request holds its headers.
        raise failure

    async def _admit(self, client: Client, url: URL) -> None:
        """Wait until the book lets a request to the client's host go out."""
        while hold := self._book.admit(client, self._clock(), delay=self._limits.delay):
            bounded = hold.reason in {"minute", "spacing"}
            if not bounded and hold.seconds > self._limits.retry.server_wait_max:
                raise _held(hold, url)
            await self._sleep(max(hold.seconds, _TICK))

    async def _exchange(self, call: _Call, url: URL, client: Client, *, home: bool) -> Answer:
        if self._session is None:
            msg = "Http is used within `async with` only"
            raise RuntimeError(msg)
        context = client.host if self._limits.delay > 0 else None
        asked = call.headers_for(home=home)
        sent = self._session.get(url, headers=asked, allow_redirects=False, trace_request_ctx=context)
        async with sent as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            limits = read_limits(headers, self._clock())
            self._book.heed(client, limits, self._clock())
            answer = Answer(shown(url), response.status, headers, b"")
            if response.status == 200:
                await read_body(response, call.sink, max_bytes=call.max_bytes)
            elif response.status not in REDIRECTS and not (response.status == 304 and home and call.etag):
                start = call.token.hide(await read_start(response, _START))
                raise self._refusal(url, answer, start, limits, client)
            return answer

    def _refusal(
        self, url: URL, answer: Answer, start: bytes, limits: Limits, client: Client
    ) -> HttpTerminal | HttpTransient:
        """Return what a refusing answer means, having told the book what it asks for."""
        now, most = self._clock(), self._limits.retry.server_wait_max
        failure = failure_of(url, answer.status, answer.headers, start, limits)
        if isinstance(failure, HttpTerminal):
            return failure
        if error_code(start) == "DAILY_QUOTA_EXCEEDED":
            until = midnight_after(now)
            self._book.pause(client.key, until, now, "quota")
            return QuotaExhausted(url, until, failed=failure)
        if failure.reason == "rate-limited" and limits.left == 0 and limits.reset is not None:
            failure.wait = max(0.0, (limits.reset - now).total_seconds())
            if failure.wait > most:
                return QuotaExhausted(url, limits.reset, failed=failure)
        if limits.retry_after is not None:
            failure.wait = max(limits.retry_after, failure.wait or 0.0)
            self._book.pause(client.host, now + timedelta(seconds=limits.retry_after), now, "rate-limited")
        return failure


def _held(hold: Hold, url: URL) -> HttpTransient:
    if hold.reason == "quota":
        return QuotaExhausted(url, hold.until)
    detail = f"the host asked for no requests before {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    failure = HttpTransient("rate-limited", url, detail)
    failure.wait = hold.seconds
    return failure
