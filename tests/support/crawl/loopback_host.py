"""A host on loopback that answers as a test says and writes down what it is asked, and a time of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, Self

from aiohttp import web

from storage.root import Root
from tasks.crawl.http.client import Http
from tasks.crawl.http.limiter import Limiter
from tasks.models.retry import RetryPolicy

P = ParamSpec("P")
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        asyncio.run(test(*arguments, **keywords))

    return run


class Time:
    """Goes on when somebody sleeps, and then at once: as soon as every request sent has arrived."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now
        self.sleeps: list[float] = []
        self.clients: list[Http] = []
        self.arrived = 0

    def clock(self) -> datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        until = self.now + timedelta(seconds=seconds)
        while seconds and self.arrived < sum(client.requests for client in self.clients):
            await asyncio.sleep(0)
        self.now = max(self.now, until)
        await asyncio.sleep(0)

    @property
    def slept(self) -> float:
        return sum(self.sleeps)


class Host:
    """Answers each path with its replies, one a request; the last of them for good."""

    def __init__(self, replies: Mapping[str, Reply | list[Reply]], time: Time | None = None) -> None:
        self.time = time or Time()
        self.requests: list[web.BaseRequest] = []
        self.arrivals: list[datetime] = []
        self.most_at_once = 0
        self._under_way = 0
        self._replies = {path: list(r) if isinstance(r, list) else [r] for path, r in replies.items()}

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.name = f"127.0.0.1:{self._runner.addresses[0][1]}"
        self.url = f"http://{self.name}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def say(self, path: str, *replies: Reply) -> None:
        """Answer a path so from now on."""
        self._replies[path] = list(replies)

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def http(self, root: Root, limits: Mapping[str, Any] | None = None) -> Http:
        """Return a client in the host's time; without limits it waits for nothing but what it is told to."""
        client = http_of(root, limits, clock=self.time.clock, sleep=self.time.sleep)
        self.time.clients.append(client)
        return client

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        self.arrivals.append(self.time.now)
        self.time.arrived += 1
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            replies = self._replies[request.path]
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
            return await reply(request)  # type: ignore[arg-type]
        finally:
            self._under_way -= 1


_OF_CLIENT = ("redirect_hosts", "timeout")


def http_of(root: Root, limits: Mapping[str, Any] | None = None, **time: Any) -> Http:  # noqa: ANN401
    """Return a client with these limits; without any it waits for nothing but what it is told to."""
    given = dict(impatient() if limits is None else limits)
    retry = given.pop("retry", RetryPolicy())
    own = {name: given.pop(name) for name in _OF_CLIENT if name in given}
    limiter = Limiter(root, longest_wait=retry.server_wait_max, **given, **time)
    return Http(limiter, retry, random=lambda: 0.5, **own)


def impatient(**limits: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return limits without delays and backoff."""
    return {"delay": 0.0, "retry": RetryPolicy(wait_max=0.0), "timeout": 20.0, **limits}


def says(body: str | bytes = b"{}", status: int = 200, **headers: str) -> Reply:
    """Return a reply; `_` in a header's name stands for `-`."""
    data = body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=status, headers=named)

    return reply


async def cuts(request: web.Request) -> web.StreamResponse:
    """Close the connection in the middle of a body."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"x" * 10)
    assert request.transport is not None
    request.transport.abort()
    return response


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """Close the connection before any answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
