"""The services on loopback, each on a port of its own, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.support.marketplace.faults import Fault, Faults, misbehave
from tests.support.marketplace.github import ArchiveHost, GitHubApi, RawHost
from tests.support.marketplace.messages import Asked, Reply, Request, RequestLog, Service, json_reply
from tests.support.marketplace.registry import Registry
from tests.support.marketplace.repository import Shelf
from tests.support.marketplace.skillsmp import SkillsMP
from tests.support.marketplace.world import World

VARIABLES = {
    "skillsmp": "SKILLERY_SKILLSMP_URL",
    "api": "SKILLERY_GITHUB_API_URL",
    "archive": "SKILLERY_GITHUB_ARCHIVE_URL",
    "raw": "SKILLERY_GITHUB_RAW_URL",
    "registry": "SKILLERY_MCP_REGISTRY_URL",
}
_PIECE = 65_536


class Elsewhere:
    """A host that nobody has business with: to see who follows a redirect there, and with which headers."""

    def answer(self, asked: Asked) -> Reply:
        return json_reply({"path": asked.path})


class Marketplace:
    """Serves a world while its `with` block lasts.

    Args:
        world: What there is; may be changed while it is served.
        faults: What goes wrong; None: nothing.
    """

    def __init__(self, world: World, faults: Faults | None = None) -> None:
        self.world, self.faults, self.log = world, faults or Faults(), RequestLog()
        self._ports = dict[str, int]()
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="marketplace", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._failure:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def url(self, service: str) -> str:
        """Return the base URL of a service; `elsewhere` is a host that is none of them."""
        return f"http://127.0.0.1:{self._ports[service]}"

    def environment(self) -> dict[str, str]:
        """Return the settings that make Skillery use these services."""
        return {variable: self.url(service) for service, variable in VARIABLES.items()}

    @property
    def requests(self) -> list[Request]:
        """What has come in so far, in order."""
        return self.log.select(None, None, None)

    def count(
        self, service: str | None = None, kind: str | None = None, repository: str | None = None
    ) -> int:
        """Return how many requests came in, retries and redirects included; None: any."""
        return len(self.log.select(service, kind, repository))

    def clear_requests(self) -> None:
        self.log.clear()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with tempfile.TemporaryDirectory(prefix="marketplace-") as folder:
            async with contextlib.AsyncExitStack() as stack:
                for name, service in self._services(Path(folder)).items():
                    self._ports[name] = await _listen(stack, _Host(self, name, service))
                self._started.set()
                await self._stop.wait()

    def _services(self, folder: Path) -> dict[str, Service]:
        shelf = Shelf(folder)
        return {
            "skillsmp": SkillsMP(self.world),
            "api": GitHubApi(self.world, self.url),
            "archive": ArchiveHost(self.world, shelf),
            "raw": RawHost(self.world),
            "registry": Registry(self.world),
            "elsewhere": Elsewhere(),
        }


async def _listen(stack: contextlib.AsyncExitStack, host: _Host) -> int:
    runner = web.ServerRunner(web.Server(host.handle, access_log=None), shutdown_timeout=0.2)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bound: int = runner.addresses[0][1]
    return bound


class _Host:
    """Takes one service's requests: logs each, asks the service, and sends what the faults leave of it."""

    def __init__(self, market: Marketplace, name: str, service: Service) -> None:
        self._market, self._name, self._service = market, name, service

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = dict(request.query)
        entry = Request(time.monotonic(), self._name, request.method, request.path, query, headers)
        self._market.log.add(entry)
        world = self._market.world
        with world.lock:
            reply = self._service.answer(Asked(request.path, entry.query, entry.headers))
        fault = self._market.faults.next(self._name, request.path, request.query_string)
        if fault:
            entry.fault = fault.kind
            reply = misbehave(reply, fault, world.now())
        entry.status, entry.kind, entry.repository = reply.status, reply.kind, reply.repository
        if fault and fault.kind == "hang":
            await asyncio.sleep(fault.seconds)
        return await _send(request, reply, fault, entry)


async def _send(
    request: web.BaseRequest, reply: Reply, fault: Fault | None, entry: Request
) -> web.StreamResponse:
    _pack(request, reply)
    size = _size(reply)
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    if size is not None:
        response.content_length = size
    entry.ended = time.monotonic()
    await response.prepare(request)
    cut = (size or _PIECE) // 2 if fault and fault.kind == "cut" else None
    with contextlib.suppress(ConnectionError):
        for piece in _pieces(reply, cut):
            # Before the piece goes out, since with the last one the asker may already read this log.
            entry.ended = time.monotonic()
            await response.write(piece)
        if cut is None:
            await response.write_eof()
    if cut is not None and request.transport:
        request.transport.close()
    return response


def _pack(request: web.BaseRequest, reply: Reply) -> None:
    welcome = "gzip" in request.headers.get("accept-encoding", "")
    plain = "json" in reply.headers.get("content-type", "") and "content-encoding" not in reply.headers
    # An answer without a body, such as a 304, must stay without one.
    if welcome and plain and isinstance(reply.body, bytes) and reply.body:
        reply.body = gzip.compress(reply.body, 1)
        reply.headers["content-encoding"] = "gzip"


def _size(reply: Reply) -> int | None:
    if isinstance(reply.body, Path):
        return reply.body.stat().st_size
    return len(reply.body) if isinstance(reply.body, bytes) else None


def _pieces(reply: Reply, cut: int | None) -> Iterator[bytes]:
    left = cut
    for piece in _whole(reply):
        if left is None:
            yield piece
        elif left > 0:
            yield piece[:left]
            left -= len(piece)
        else:
            return


def _whole(reply: Reply) -> Iterable[bytes]:
    if isinstance(reply.body, Path):
        with reply.body.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    elif isinstance(reply.body, bytes):
        for start in range(0, len(reply.body), _PIECE):
            yield reply.body[start : start + _PIECE]
    else:
        yield from reply.body()
