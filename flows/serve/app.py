"""The ASGI app: HTTP API, the catalogue's pages and MCP behind one gate, over bounded connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import ClassVar

import uvicorn
from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.serve.answers.service import ServeSettings, Service
from flows.serve.catalogue.routes import catalogue_router
from flows.serve.gate import Callers, Gate
from flows.serve.http_api import Figures, add_handlers, api_router, page_router
from flows.serve.mcp_server import mcp_server
from flows.serve.registry import LiveRegistry, registry_router

_HEADER_BYTES = 65_536  # of a request's line and headers
_TAKING = 30.0  # seconds, beyond the answer's own, in which a client must take an answer
_IDLE = 60  # seconds that a connection may wait for its next request


def serving_app(service: Service, names: list[str], public_url: str | None = None) -> ASGIApp:
    """Return the app that answers for a service, under these names beside localhost and addresses.

    `public_url` is the address of its registry, where that is not the one that a client asks at.
    """
    token = service.limits.token.get_secret_value()
    # Without sessions a request leaves nothing behind, and any revision of the protocol is answered.
    sessions = StreamableHTTPSessionManager(
        mcp_server(service, shared=not token), json_response=True, stateless=True,
        max_request_body_size=service.limits.body_bytes,
    )  # fmt: skip

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        registry.warm()
        async with sessions.run():
            yield
        registry.close()
        service.close()

    app = FastAPI(
        title="Skillery", version=metadata.version("skillery"), lifespan=lifespan, docs_url=None,
        redoc_url=None,
    )  # fmt: skip
    figures, registry = Figures(service), LiveRegistry(service, public_url)
    app.include_router(api_router(service))
    app.include_router(page_router(app, service, figures))
    app.include_router(catalogue_router(service))
    app.include_router(registry_router(service, registry))
    # Nothing is sent unasked, so that GET, which would open a stream without end, is not allowed.
    app.router.routes.append(Route("/mcp", StreamableHTTPASGIApp(sessions), methods=["POST"]))
    add_handlers(app)
    return Gate(app, Callers(names, token), service.limits, figures.count)


def serving_config(service: Service, names: list[str], public_url: str | None = None) -> uvicorn.Config:
    """Return how uvicorn serves the app: no WebSockets, no log of requests, no proxy's headers."""
    return uvicorn.Config(
        serving_app(service, names, public_url), http=_bounded_protocol(service.limits), ws="none",
        log_config=None, access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=_IDLE,
        h11_max_incomplete_event_size=_HEADER_BYTES, timeout_graceful_shutdown=5, lifespan="on",
    )  # fmt: skip


class BoundedProtocol(H11Protocol):
    """The protocol of uvicorn, which by itself waits for headers, and for readers of answers, without end."""

    limits: ClassVar[ServeSettings]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or turn a client away that has too many connections."""
        super().connection_made(transport)
        self._by(self.limits.read_seconds)
        others = [c for c in self.connections if isinstance(c, H11Protocol) and _host(c) == _host(self)]
        if len(others) > self.limits.client_connections:
            self._turn_away(b"429 Too Many Requests", b"too many connections from your address")
        elif len(self.connections) > self.limits.connections:
            self._turn_away(b"503 Service Unavailable", b"too many connections")

    def handle_events(self) -> None:
        """Handle what came; once it is a request, its body and its answer have their time."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._by(self.limits.read_seconds + self.limits.seconds + _TAKING)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._by(_IDLE + self.limits.read_seconds)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _by(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _turn_away(self, status: bytes, why: bytes) -> None:
        body = b'{"error": "%s: close some, and ask again in a second"}' % why
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
        self.transport.write(head % status + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


def _bounded_protocol(limits: ServeSettings) -> type[BoundedProtocol]:
    """Return the protocol with these limits."""
    return type("BoundedByLimits", (BoundedProtocol,), {"limits": limits})


def _host(connection: H11Protocol) -> str | None:
    return connection.client[0] if connection.client else None
