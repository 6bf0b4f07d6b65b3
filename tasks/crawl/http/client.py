"""The HTTP client of every source: polite to hosts, bounded in what it reads, careful with credentials."""

from __future__ import annotations

import contextlib
import logging
import random as _random
import types
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from yarl import URL

from storage.errors import StorageError
from storage.root import Root
from tasks.crawl.http.limiter import Client, Limiter, Quota, service_of
from tasks.crawl.http.public import PublicOnly, require_public
from tasks.crawl.http.responses import (
    ERROR_BYTES,
    Answer,
    HttpTerminal,
    HttpTransient,
    QuotaExhausted,
    failure_of,
    host_of,
    read_body,
    read_limits,
    read_start,
    shown,
    web_url,
)
from tasks.crawl.http.settings import CrawlSettings, Secret
from tasks.models.http_body import ENCODINGS
from tasks.models.retry import RetryPolicy, retrying

log = logging.getLogger(__name__)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_BUFFER = 1 << 16  # bytes
_CONNECT_SECONDS = 15.0  # that connecting may take
# Failures after which to ask again; a transient 403 is a rate limit, and 501 will be the answer tomorrow too.
_RETRIED_STATUSES = frozenset({403, 408, 425, 429, 500, 502, 503, 504})
_RETRIED_REASONS = frozenset({"timeout", "connection"})  # of failures without a status
# The marketplace's quota of a key. It states the quota of anonymous clients with each answer.
_SKILLSMP_QUOTA = Quota(per_minute=30, per_day=500)


def open_http(settings: CrawlSettings, root: Root, own: str = "") -> Http:
    """Return a client, to be used in an `async with`, whose quotas are counted below `root`.

    The host of `own`, the operator's URL, need not be public.
    """
    forge = (settings.github_api_url, settings.github_archive_url, settings.github_raw_url)
    services = _usable(
        *forge, settings.skillsmp_url, settings.mcp_registry_url, settings.clawhub_url, settings.skillssh_url
    )
    retry = RetryPolicy(wait_min=min(1.0, settings.retry_wait_max), wait_max=settings.retry_wait_max)
    limiter = Limiter(
        root, delay=settings.request_delay, concurrency=settings.request_concurrency,
        longest_wait=retry.server_wait_max, services=frozenset(map(service_of, services)),
        token_quotas={service_of(url): _SKILLSMP_QUOTA for url in _usable(settings.skillsmp_url)},
    )  # fmt: skip
    redirects = frozenset(map(host_of, _usable(*forge)))
    hosts = frozenset(map(host_of, _usable(own)))
    return Http(limiter, retry, redirect_hosts=redirects, own_hosts=hosts, timeout=settings.request_timeout)


def _usable(*urls: str) -> list[URL]:
    """Return the URLs that requests can be sent to; a source with another one fails by itself."""
    found = []
    for url in urls:
        with contextlib.suppress(HttpTerminal):
            found.append(web_url(url))
    return found


@dataclass(frozen=True, slots=True)
class _Call:
    """One URL to fetch, with redirects and retries in several requests."""

    url: URL
    headers: Mapping[str, str]
    token: Secret  # sent as a bearer token, unless empty
    etag: str | None  # of the answer that the caller has
    max_bytes: int  # of the unpacked body
    sink: BinaryIO = field(repr=False)  # receives the body
    roams: bool = False  # whether it, and its redirects, may lead to any public host
    json: Any = None  # what is posted; None: a GET

    def headers_for(self, *, home: bool) -> dict[str, str]:
        """Return the headers of one request; a host other than the first sees only `Accept`."""
        headers = {name: value for name, value in self.headers.items() if home or name.lower() == "accept"}
        if home and self.token:
            headers["Authorization"] = f"Bearer {self.token.reveal()}"
        if home and self.etag is not None:
            headers["If-None-Match"] = self.etag
        return headers


class Http:
    """Fetches URLs, each host at its pace; use it in an `async with` statement, in one event loop.

    Args:
        redirect_hosts: Other hosts (`host`, or `host:port` if the port is not the usual one) that a redirect
            may lead to; they never see credentials.
        own_hosts: Hosts, in the same form, that are asked though they are not public.
        timeout: Longest time of a request with its body, seconds.
        random: Draws evenly from [0, 1).
    """

    def __init__(
        self, limiter: Limiter, retry: RetryPolicy, *, redirect_hosts: AbstractSet[str] = frozenset(),
        own_hosts: AbstractSet[str] = frozenset(), timeout: float = 120.0,
        random: Callable[[], float] = _random.random,
    ) -> None:  # fmt: skip
        self.requests = 0  # sent so far, retries and redirects included
        self._limiter, self._retry, self._redirect_hosts = limiter, retry, redirect_hosts
        self._own_hosts, self._timeout = own_hosts, timeout
        self._session: aiohttp.ClientSession | None = None
        self._retrying = retrying(
            retry, again=self._is_passing, wait=_wait, before_sleep=_log_retry, sleep=limiter.sleep,
            random=random,
        )  # fmt: skip

    async def __aenter__(self) -> Http:
        """Open a session: without cookies, and sending each request once."""

        async def on_sent(_session: aiohttp.ClientSession, context: types.SimpleNamespace, _: object) -> None:
            if context.trace_request_ctx is not None:
                self._limiter.sent(context.trace_request_ctx, self._limiter.clock())

        self._resolver = PublicOnly()
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(on_sent)
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"skillery/{version('skillery')}", "Accept-Encoding": ENCODINGS},
            timeout=aiohttp.ClientTimeout(total=self._timeout, connect=_CONNECT_SECONDS),
            # The limiter bounds the connections of each host.
            connector=aiohttp.TCPConnector(limit=0, resolver=self._resolver),
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, read_bufsize=_BUFFER,
            trace_configs=[trace], middlewares=(_once,), requote_redirect_url=False,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        self._session = None

    async def get(
        self, url: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None,
        token: Secret | None = None, etag: str | None = None, max_bytes: int = 20_000_000,
        roams: bool = False, json: Any = None,  # noqa: ANN401
    ) -> Answer:  # fmt: skip
        """Return the answer to a GET request, or to a POST of `json`, which may be sent more than once.

        The `token`, and `headers` but `Accept`, go to the URL's own host only. Where the answer of `etag`
        still holds, an empty 304 comes. `max_bytes` bounds the unpacked body. With `roams`, for a URL out of
        what was crawled, it and its redirects may lead to any host but a private one.

        Raises:
            HttpTerminal: Asking again cannot help.
            HttpTransient: The request failed now, also when it was sent again.
            QuotaExhausted: The host allows no more for now; the last request was refused, or not sent.
        """
        where = web_url(url).update_query(dict(params)) if params else web_url(url)
        body = BytesIO()
        call = _Call(where, headers or {}, token or Secret(), etag, max_bytes, body, roams, json)
        answer: Answer = await self._retrying(self._follow, call)
        return replace(answer, body=body.getvalue())

    async def download(
        self, url: str, path: Path, *, headers: Mapping[str, str] | None = None, token: Secret | None = None,
        max_bytes: int = 50_000_000, roams: bool = False,
    ) -> Answer:  # fmt: skip
        """Download a body into `path`, which appears when it is whole; return the answer without its body.

        Arguments are those of `get`; the folder of `path` is made if there is none. Raises as `get`, and
        StorageError where the file cannot be written.
        """
        where, sent = web_url(url), {"Accept-Encoding": "identity", **(headers or {})}
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as sink:
                call = _Call(where, sent, token or Secret(), None, max_bytes, sink, roams)
                answer: Answer = await self._retrying(self._follow, call)
            beside.replace(path)
        except OSError as error:
            raise StorageError(f"{path} cannot be written ({error.strerror})") from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return answer

    def quota_left(self, url: str) -> int | None:
        """Return how many requests the URL's service still allows; None: it has set no limit.

        If it was asked both with and without a token, the last kind of request counts.
        """
        return self._limiter.left(web_url(url))

    async def _follow(self, call: _Call) -> Answer:
        call.sink.seek(0)
        call.sink.truncate()
        url, home = call.url, True
        for _ in range(_MOST_REDIRECTS + 1):
            if call.roams and host_of(url) not in self._own_hosts:
                require_public(url)
                self._resolver.guarded.add((url.raw_host or "", url.port))
            answer = await self._send(call, url, home=home)
            if answer.status not in _REDIRECTS:
                return answer
            target = next_hop(
                url, answer.headers.get("location", ""), None if call.roams else self._redirect_hosts
            )
            # Once away, credentials stay away: another host must not choose what they open.
            url, home = target, home and host_of(target) == host_of(url)
        raise HttpTerminal("redirect", call.url, f"there are more than {_MOST_REDIRECTS} redirects")

    async def _send(self, call: _Call, url: URL, *, home: bool) -> Answer:
        """Send one request of a call when its host's turn comes; return its answer, which may be a redirect.

        If the status is 200, the body is in the call's sink. `home` tells whether the host of `url` is the
        one that the caller named: no other sees credentials. Raises as `get`.
        """
        if self._session is None:
            raise RuntimeError("Http is used within `async with` only")
        token = call.token if home else Secret()
        client = self._limiter.client(url, token.fingerprint() if token else None)
        async with self._limiter.turn(client, url):
            self.requests += 1
            try:
                return await self._exchange(self._session, call, url, client, home=home)
            except TimeoutError:
                most = f"{_CONNECT_SECONDS:g} s to connect, {self._timeout:g} s in all"
                failure = HttpTransient("timeout", url, f"no whole answer in time ({most})")
            except aiohttp.ClientError as error:
                failure = HttpTransient("connection", url, f"the exchange broke off ({type(error).__name__})")
        # Raised outside `except`, since aiohttp's own error holds the request's headers.
        raise failure

    async def _exchange(
        self, session: aiohttp.ClientSession, call: _Call, url: URL, client: Client, *, home: bool
    ) -> Answer:
        limiter = self._limiter
        context = client.host if limiter.delay > 0 else None
        own = call.headers_for(home=home)
        ask = session.get if call.json is None else partial(session.post, json=call.json)
        request = ask(url, headers=own, allow_redirects=False, trace_request_ctx=context)
        async with request as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            limits = read_limits(headers, limiter.clock())
            limiter.heed(client, limits, limiter.clock())
            # 202: what was posted wants no answer.
            if response.status == 200 or (response.status == 202 and call.json is not None):
                await read_body(response, call.sink, max_bytes=call.max_bytes)
            elif response.status not in _REDIRECTS and not (response.status == 304 and home and call.etag):
                start = call.token.hide(await read_start(response, ERROR_BYTES))
                failure = failure_of(url, response.status, headers, start, limits)
                raise limiter.refused(failure, url, client, limits)
            return Answer(shown(url), response.status, headers)

    def _is_passing(self, failure: BaseException | None) -> bool:
        """Tell whether another try may help, after a wait that the policy accepts."""
        if not isinstance(failure, HttpTransient) or isinstance(failure, QuotaExhausted):
            return False
        if not self._retry.accepts(failure.wait):
            return False
        return failure.status in _RETRIED_STATUSES or (
            failure.status is None and failure.reason in _RETRIED_REASONS
        )


async def _once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Send a request; hide a cut connection from aiohttp, which would send the request again at once."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise HttpTransient("connection", request.url, f"the connection failed ({why})") from None


def _wait(failure: BaseException | None, own: float) -> float:
    # A wait that the server asked for is with the limiter, where all requests to the host wait for it.
    return 0.0 if isinstance(failure, HttpTransient) and failure.wait is not None else own


def _log_retry(failure: BaseException | None, tried: int) -> None:
    if isinstance(failure, HttpTransient):
        log.info("%s: %s, try %d failed; trying again", failure.url, failure.reason, tried)


def next_hop(url: URL, location: str, allowed: AbstractSet[str] | None) -> URL:
    """Return the target of a redirect from `url` to `location`, which may be relative; None allows all hosts.

    To a host neither `allowed` nor that of `url`, from https to http, or nowhere is HttpTerminal `redirect`.
    """
    try:
        target = web_url(str(url.join(URL(location))) if location else "")
    except (ValueError, HttpTerminal):
        raise HttpTerminal("redirect", url, f"{host_of(url)} redirects to what is no URL") from None
    if url.scheme == "https" and target.scheme == "http":
        detail = f"{host_of(url)} redirects from https to http at {host_of(target)}: not followed"
        raise HttpTerminal("redirect", url, detail)
    if allowed is not None and host_of(target) != host_of(url) and host_of(target) not in allowed:
        detail = f"{host_of(url)} redirects to {host_of(target)}, which is not among the hosts it may lead to"
        raise HttpTerminal("redirect", url, detail)
    return target
