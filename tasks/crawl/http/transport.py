"""The transport of one request: waits for the host's turn, sends it, and books the response."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import BinaryIO

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from yarl import URL

from tasks.crawl.http.body import read_body, read_start
from tasks.crawl.http.errors import HttpTerminal, HttpTransient, QuotaExhausted, shown
from tasks.crawl.http.politeness import Politeness, QuotaBook
from tasks.crawl.http.quota import Client, Hold, midnight_after
from tasks.crawl.http.redirects import REDIRECTS, host_of
from tasks.crawl.http.responses import ERROR_BYTES, Answer, RateLimits, error_code, failure_of, read_limits
from tasks.crawl.http.secrets import Secret

_BUFFER = 1 << 16  # bytes
_TICK = 0.001  # seconds, the least wait: after rounding, a shorter one might not let the clock go on


async def _once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Send a request; hide a cut connection from aiohttp, which would send the request again at once."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        raise HttpTransient("connection", request.url, f"the connection failed ({said})") from None


@dataclass(frozen=True, slots=True)
class Call:
    """One URL to fetch, with redirects and retries in several requests."""

    url: URL
    headers: Mapping[str, str]
    token: Secret  # sent as a bearer token, unless empty
    etag: str | None  # of the answer that the caller has
    max_bytes: int  # of the unpacked body
    sink: BinaryIO = field(repr=False)  # receives the body

    def headers_for(self, *, home: bool) -> dict[str, str]:
        """Return the headers of one request; a host other than the first sees only `Accept`."""
        headers = {name: value for name, value in self.headers.items() if home or name.lower() == "accept"}
        if home and self.token:
            headers["Authorization"] = f"Bearer {self.token.reveal()}"
        if home and self.etag is not None:
            headers["If-None-Match"] = self.etag
        return headers


class Sender:
    """Sends requests, each host's at its pace, within one event loop.

    `clock` returns the time, UTC; `sleep` waits for a number of seconds, in which `clock` must go on.
    """

    def __init__(
        self,
        limits: Politeness,
        book: QuotaBook,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.requests = 0
        self._limits, self._book, self._clock, self._sleep = limits, book, clock, sleep
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._clients: dict[str, Client] = {}
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Open a session within a running event loop: without cookies, and sending each request once."""

        async def on_sent(
            _session: aiohttp.ClientSession,
            context: types.SimpleNamespace,
            _parameters: aiohttp.TraceRequestHeadersSentParams,
        ) -> None:
            if context.trace_request_ctx is not None:
                self._book.sent(context.trace_request_ctx, self._clock())

        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(on_sent)
        total, connect = self._limits.timeout, self._limits.connect_timeout
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"skillery/{version('skillery')}", "Accept-Encoding": "gzip"},
            timeout=aiohttp.ClientTimeout(total=total, connect=connect),
            # The semaphores limit the connections of each host.
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_BUFFER,
            trace_configs=[trace],
            middlewares=(_once,),
            requote_redirect_url=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        self._session = None

    async def send(self, call: Call, url: URL, *, home: bool) -> Answer:
        """Send one request of a call when its host's turn comes; return its answer, which may be a redirect.

        If the status is 200, the body is in the call's sink. `home` tells whether the host of `url` is the
        one that the caller named: no other sees credentials.

        Raises:
            HttpTerminal: Asking again cannot help.
            HttpTransient: Asking again may help, after `wait` seconds if the server said so.
            QuotaExhausted: The host allows no more for now.
        """
        session = self._session
        if session is None:
            raise RuntimeError("Http is used within `async with` only")
        host, token = host_of(url), call.token if home else Secret()
        client = self._limits.client(url, token.fingerprint() if token else None)
        self._clients[client.service] = client
        slots = self._slots.setdefault(host, asyncio.Semaphore(self._limits.concurrency))
        async with slots:
            await self._admit(client, url)
            self.requests += 1
            try:
                return await self._exchange(session, call, url, client, home=home)
            except TimeoutError:
                most = f"{self._limits.connect_timeout:g} s to connect, {self._limits.timeout:g} s in all"
                failure = HttpTransient("timeout", url, f"no whole answer in time ({most})")
            except aiohttp.ClientError as error:
                failure = HttpTransient("connection", url, f"the exchange broke off ({type(error).__name__})")
        # Raised outside `except`, since aiohttp's own error holds the request's headers.
        raise failure

    def left(self, url: URL) -> int | None:
        """Return how many requests a URL's service allows the client that asked last; None: any number."""
        anonymous = self._limits.client(url, None)
        client = self._clients.get(anonymous.service, anonymous)
        return self._book.left(client, self._clock())

    async def _admit(self, client: Client, url: URL) -> None:
        while hold := self._book.admit(client, self._clock(), delay=self._limits.delay):
            bounded = hold.reason in {"minute", "spacing"}
            if not bounded and hold.seconds > self._limits.retry.server_wait_max:
                raise _held(hold, url)
            await self._sleep(max(hold.seconds, _TICK))

    async def _exchange(
        self, session: aiohttp.ClientSession, call: Call, url: URL, client: Client, *, home: bool
    ) -> Answer:
        context = client.host if self._limits.delay > 0 else None
        asked = call.headers_for(home=home)
        sent = session.get(url, headers=asked, allow_redirects=False, trace_request_ctx=context)
        async with sent as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            limits = read_limits(headers, self._clock())
            self._book.heed(client, limits, self._clock())
            answer = Answer(shown(url), response.status, headers)
            if response.status == 200:
                await read_body(response, call.sink, max_bytes=call.max_bytes)
            elif response.status not in REDIRECTS and not (response.status == 304 and home and call.etag):
                start = call.token.hide(await read_start(response, ERROR_BYTES))
                raise self._refusal(url, answer, start, limits, client)
            return answer

    def _refusal(
        self, url: URL, answer: Answer, start: bytes, limits: RateLimits, client: Client
    ) -> HttpTerminal | HttpTransient:
        """Return the error of a refusing answer; the pause that it asks for goes into the book."""
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
            self._book.pause(client.service, now + timedelta(seconds=limits.retry_after), now, "rate-limited")
        return failure


def _held(hold: Hold, url: URL) -> HttpTransient:
    if hold.reason == "quota":
        return QuotaExhausted(url, hold.until)
    detail = f"the host asked for no requests before {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    failure = HttpTransient("rate-limited", url, detail)
    failure.wait = hold.seconds
    return failure
