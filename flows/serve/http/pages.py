"""Pages beside the API: documentation without scripts, whether the server lives, and its metrics."""

from __future__ import annotations

import html
import json
import threading
from typing import Any

from fastapi import APIRouter, FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import HTMLResponse, JSONResponse, Response

from flows.serve.answers.service import Service

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Figures:
    """Counts requests and times answers, for Prometheus."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self._root, self._lock = service.root, threading.Lock()
        self._collector: Collector | None = None
        labels = ["route", "status"]
        self._requests = Counter("skillery_requests", "Requests answered.", labels, registry=self.registry)
        self._seconds = Histogram(
            "skillery_request_seconds", "Seconds from a request to the end of its answer.", ["route"],
            buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip

    def printed(self) -> bytes:
        """Return them, and those of the root, as Prometheus reads them."""
        from flows.commands.monitoring import RootCollector  # noqa: PLC0415 (answers do without what it loads)

        with self._lock:
            if self._collector is None:
                self._collector = RootCollector(self._root)
                self.registry.register(self._collector)
        return generate_latest(self.registry)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is one of few."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


def page_router(app: FastAPI, service: Service, figures: Figures) -> APIRouter:
    """Return the routes `/docs`, `/healthz` and `/metrics`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(_docs(app.openapi()))

    @router.get("/healthz")
    async def healthz() -> Response:
        told = {"status": "ok", "published": await service.run(service.ready)}
        return JSONResponse(told, headers={"cache-control": "no-store"})

    @router.get("/metrics")
    async def metrics() -> Response:
        found = await service.run(figures.printed)
        return Response(found, headers={"cache-control": "no-store"}, media_type=CONTENT_TYPE_LATEST)

    return router


def _docs(schema: dict[str, Any]) -> str:
    """Return the OpenAPI description as a page; it needs no script, so that none is allowed."""
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>Skillery: HTTP API</title>"
    intro = "<h1>Skillery: HTTP API</h1><p>As data: <a href=/openapi.json>/openapi.json</a>. MCP: /mcp."
    parts = [
        f"<h2>{html.escape(method.upper())} {html.escape(path)}</h2><p>{html.escape(said.get('summary', ''))}"
        f"{_parameters(said)}{_body(said)}"
        for path, methods in schema["paths"].items()
        for method, said in methods.items()
    ]
    return head + intro + "".join(parts)


def _parameters(said: dict[str, Any]) -> str:
    rows = [
        f"<li><code>{html.escape(p['name'])}</code> ({p['in']}{', required' if p['required'] else ''}): "
        f"<code>{html.escape(json.dumps(p['schema']))}</code>"
        for p in said.get("parameters", ())
    ]
    return f"<ul>{''.join(rows)}</ul>" if rows else ""


def _body(said: dict[str, Any]) -> str:
    content = said.get("requestBody", {}).get("content", {}).get("application/json")
    return f"<pre>{html.escape(json.dumps(content['schema'], indent=1))}</pre>" if content else ""
