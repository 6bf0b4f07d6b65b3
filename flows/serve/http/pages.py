"""Pages beside the API: its documentation, whether the server lives, and its metrics."""

from __future__ import annotations

import threading

from fastapi import APIRouter, FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, Response

from flows.serve.answers.service import Service
from flows.serve.catalogue.rendering import page_answer, render

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
        return page_answer(render("docs.html", paths=app.openapi()["paths"]))

    @router.get("/healthz")
    async def healthz() -> Response:
        told = {"status": "ok", "published": await service.run(service.ready)}
        return JSONResponse(told, headers={"cache-control": "no-store"})

    @router.get("/metrics")
    async def metrics() -> Response:
        found = await service.run(figures.printed)
        return Response(found, headers={"cache-control": "no-store"}, media_type=CONTENT_TYPE_LATEST)

    return router
