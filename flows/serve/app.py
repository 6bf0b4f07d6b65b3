"""The ASGI app: HTTP API, the catalogue's pages and MCP behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

import uvicorn
from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.serve.answers.service import Service
from flows.serve.catalogue.routes import catalogue_router
from flows.serve.connections import IDLE, bounded_protocol
from flows.serve.gate import Callers, Gate
from flows.serve.http_api import Figures, add_handlers, api_router, page_router
from flows.serve.mcp_server import mcp_server
from flows.serve.registry import LiveRegistry, registry_router

_HEADER_BYTES = 65_536  # of a request's line and headers


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
        serving_app(service, names, public_url), http=bounded_protocol(service.limits), ws="none",
        log_config=None, access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=IDLE,
        h11_max_incomplete_event_size=_HEADER_BYTES, timeout_graceful_shutdown=5, lifespan="on",
    )  # fmt: skip
