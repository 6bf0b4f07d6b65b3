"""The ASGI app: HTTP API, pages and MCP behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.serve.answers.service import Service
from flows.serve.guard.callers import Callers
from flows.serve.guard.gate import Gate
from flows.serve.http.api import api_router
from flows.serve.http.errors import add_handlers
from flows.serve.http.pages import Figures, page_router
from flows.serve.mcp.server import mcp_server


def serving_app(service: Service, names: list[str]) -> ASGIApp:
    """Return the app that answers for a service, under these names beside localhost and addresses."""
    token = service.limits.token.get_secret_value()
    # Without sessions a request leaves nothing behind, and any revision of the protocol is answered.
    sessions = StreamableHTTPSessionManager(
        mcp_server(service, shared=not token), json_response=True, stateless=True,
        max_request_body_size=service.limits.body_bytes,
    )  # fmt: skip

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with sessions.run():
            yield
        service.close()

    app = FastAPI(
        title="Skillery",
        version=metadata.version("skillery"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    figures = Figures(service)
    app.include_router(api_router(service))
    app.include_router(page_router(app, service, figures))
    # Nothing is sent unasked, so that GET, which would open a stream without end, is not allowed.
    app.router.routes.append(Route("/mcp", StreamableHTTPASGIApp(sessions), methods=["POST"]))
    add_handlers(app)
    return Gate(app, Callers(names, token), service.limits, figures.count)
