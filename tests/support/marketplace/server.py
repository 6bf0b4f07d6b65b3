"""The services on loopback, each on a port of its own, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self, TypeAlias

from aiohttp import web

from tests.support.marketplace.github import ArchiveHost, GitHubApi, RawHost
from tests.support.marketplace.listings import Registry, SkillsMP
from tests.support.marketplace.messages import Faults, Request, Service, misbehave
from tests.support.marketplace.world import World

VARIABLES = {
    "skillsmp": "SKILLERY_SKILLSMP_URL",
    "api": "SKILLERY_GITHUB_API_URL",
    "archive": "SKILLERY_GITHUB_ARCHIVE_URL",
    "raw": "SKILLERY_GITHUB_RAW_URL",
    "registry": "SKILLERY_MCP_REGISTRY_URL",
}
Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Marketplace:
    """Serves a world while its `with` block lasts.

    Args:
        world: What there is; may be changed while it is served.
        faults: What goes wrong; None: nothing.
    """

    def __init__(self, world: World, faults: Faults | None = None) -> None:
        self.world, self.faults = world, faults or Faults()
        self.log: list[Request] = []
        self._ports = dict[str, int]()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def url(self, service: str) -> str:
        """Return the base URL of a service."""
        return f"http://127.0.0.1:{self._ports[service]}"

    def environment(self) -> dict[str, str]:
        """Return the settings that make Skillery use these services."""
        return {variable: self.url(service) for service, variable in VARIABLES.items()}

    @property
    def requests(self) -> list[Request]:
        """What has come in so far, in order, retries and redirects included."""
        return self.log.copy()

    def count(self, service: str | None = None, kind: str | None = None) -> int:
        """Return how many requests came in to a service and of a kind; None: any."""
        return sum(service in {None, r.service} and kind in {None, r.kind} for r in self.requests)

    def clear_requests(self) -> None:
        self.log.clear()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        services: dict[str, Service] = {
            "skillsmp": SkillsMP(self.world),
            "api": GitHubApi(self.world, self.url),
            "archive": ArchiveHost(self.world),
            "raw": RawHost(self.world),
            "registry": Registry(self.world),
        }
        async with contextlib.AsyncExitStack() as stack:
            for name, service in services.items():
                self._ports[name] = await _listen(stack, partial(_handle, self, name, service))
            self._started.set()
            await self._stop.wait()


async def _listen(stack: contextlib.AsyncExitStack, handle: Handler) -> int:
    runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.2)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bound: int = runner.addresses[0][1]
    return bound


async def _handle(
    market: Marketplace, name: str, service: Service, request: web.BaseRequest
) -> web.StreamResponse:
    """Log a request to a service, ask the service, and send what the faults leave of its answer."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    entry = Request(name, request.path, dict(request.query), headers)
    market.log.append(entry)
    with market.world.lock:
        reply = service.answer(entry)
    if fault := market.faults.next(name, request.path, request.query_string):
        reply = misbehave(reply, fault)
    entry.status, entry.kind, entry.repository = reply.status, reply.kind, reply.repository
    welcome = "gzip" in request.headers.get("accept-encoding", "")
    # An answer without a body, such as a 304, must stay without one.
    if welcome and "json" in reply.headers.get("content-type", "") and reply.body:
        reply.body, reply.headers["content-encoding"] = gzip.compress(reply.body, 1), "gzip"
    return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
