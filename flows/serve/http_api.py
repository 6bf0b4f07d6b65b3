"""The HTTP API: its routes, its errors, and the pages beside it: documentation, liveness, metrics."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from flows.commands.queries import require_page_options, search_filters
from flows.hook.run import HOOK
from flows.serve.answers.forms import LONGEST_ID, LONGEST_PATH, LONGEST_TEXT
from flows.serve.answers.service import DEFAULT, Service
from flows.serve.answers.tool import Tool
from flows.serve.answers.tools import TOOLS
from flows.serve.catalogue.rendering import page_answer, render
from flows.serve.catalogue.routes import error_page, wants_page
from storage.errors import NotPublished, SkilleryError, TransientError, UnknownDocument, Withheld, WrongInput
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.revisions.edition import SKILL_FILE
from tasks.retrieve.revisions.show import file_of, shown
from tasks.retrieve.skills.bundle import MARKDOWN, mime_of

log = logging.getLogger(__name__)
_NOTHING = "nothing is served yet: `skillery run` publishes what it reads"
_RETRY = {"retry-after": "5"}
_STATUS: tuple[tuple[type[SkilleryError], int], ...] = (
    (UnknownDocument, 404), (Withheld, 451), (WrongInput, 400), (NotPublished, 503), (TransientError, 503),
)  # fmt: skip


def error_answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as every handler, and the gate before them, gives it."""
    found = {"error": message, "status": status}
    return JSONResponse(found, status, headers={"cache-control": "no-store", **(headers or {})})


def _said(request: Request, status: int, message: str, headers: dict[str, str]) -> Response:
    if wants_page(request):
        return error_page(status, message, headers)
    return error_answer(status, message, headers)


def add_handlers(app: FastAPI) -> None:
    """Let an app answer our errors, those of forms and of paths, and unforeseen ones; pages by pages."""

    def ours(request: Request, error: Exception) -> Response:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 503)
        # A caller need not know where the root lies.
        said = _NOTHING if isinstance(error, NotPublished) else str(error)
        return _said(request, status, said, _RETRY if status == 503 else {})

    def form(request: Request, error: Exception) -> Response:
        first: dict[str, Any] = error.errors()[0]  # type: ignore[attr-defined]
        where = ".".join(str(part) for part in first["loc"])
        return _said(request, 400, f"{where}: {first['msg']}: see /docs", {})

    def path(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 (for the types)
        phrase = HTTPStatus(error.status_code).phrase
        return _said(request, error.status_code, f"{phrase}: see /docs", dict(error.headers or {}))

    def unforeseen(request: Request, error: Exception) -> Response:
        log.error("%s cannot be answered", request.url.path, exc_info=error)
        return _said(request, 500, "this is a fault of the server: its log says where", {})

    app.add_exception_handler(SkilleryError, ours)
    app.add_exception_handler(RequestValidationError, form)
    app.add_exception_handler(HTTPException, path)
    app.add_exception_handler(Exception, unforeseen)


_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Figures:
    """Counts requests and times answers, for Prometheus."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self._root, self._lock = service.root, threading.Lock()
        self._collector: Collector | None = None
        own: CollectorRegistry | None = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # what all workers count lies there, and is added up
            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
            own = None
        labels = ["route", "status"]
        self._requests = Counter("skillery_requests", "Requests answered.", labels, registry=own)
        self._seconds = Histogram(
            "skillery_request_seconds", "Seconds from a request to the end of its answer.", ["route"],
            buckets=_BUCKETS, registry=own,
        )  # fmt: skip
        labels, text = ["via", "action", "fits"], "Events of the usage log that wait to be written."
        self._asked = Counter("skillery_asked", "Questions answered.", labels, registry=own)
        self._waiting = Gauge("skillery_usage_queue", text, registry=own, multiprocess_mode="livesum")
        service.usage.watch = self._noted

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

    def _noted(self, event: tuple[str, str, bool | None] | None, waiting: int) -> None:
        if event is not None:
            via, action, fits = event
            self._asked.labels(via, action, {True: "yes", False: "no", None: ""}[fits]).inc()
        self._waiting.set(waiting)


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


Json = dict[str, Any]
_BINARY = "application/octet-stream"
Text = Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT)]
Id = Annotated[str, Query(min_length=1, max_length=LONGEST_ID)]
Several = Annotated[list[str] | None, Query()]


def api_router(service: Service) -> APIRouter:
    """Return the routes below `/api`."""
    router = APIRouter(prefix="/api", dependencies=[Depends(_require_known)])

    @router.get("/search", summary="Find the skills that fit a task.")
    async def search(
        request: Request, q: Text, k: Annotated[int, Query(ge=1, le=100)] = 10, kind: Several = None,
        licence: Several = None, source: Several = None, risk: Several = None, explain: bool = False,
        min_fit: Annotated[float | None, Query(ge=0, le=1)] = None, method: str = DEFAULT,
    ) -> Response:  # fmt: skip
        def found() -> Json:
            filters = search_filters(kind, licence, source, risk)
            how = {"filters": filters, "explain": explain, "min_fit": min_fit}
            return service.noted(_via(request), "search", q, partial(service.search, q, k, method, **how))

        return await _tagged(service, request, found, slow=method != DEFAULT)

    @router.get("/page", summary="Return the parts of a skill that a request needs.")
    async def page(
        request: Request, doc_id: Id, q: Text, budget: float | None = None, method: str = DEFAULT_METHOD
    ) -> Response:
        def found() -> Json:
            require_page_options([method], [budget])
            paged = partial(service.index.page, doc_id, q, budget=budget, method=method)
            return service.noted(_via(request), "page", q, paged)

        return await _tagged(service, request, found, slow=True)

    @router.get("/skills/{doc_id:path}", summary="Show a skill, or with `file` one of its files.")
    async def skill(
        request: Request, doc_id: str,
        file: Annotated[str | None, Query(min_length=1, max_length=LONGEST_PATH)] = None,
        form: Literal["json", "raw"] = "json",
    ) -> Response:  # fmt: skip
        if not doc_id or len(doc_id) > LONGEST_ID:
            raise WrongInput(f"the id has {len(doc_id):,} characters: give 1 to {LONGEST_ID:,}")
        found = _raw if form == "raw" else _skill
        return await _tagged(service, request, lambda: found(service, doc_id, file))

    @router.get("/status", summary="Tell what is served, and how the last runs went.")
    async def status() -> Response:
        def found() -> Json:
            # Other answers do without what this loads, and do not wait for it in a thread.
            from flows.commands.operate import root_status  # noqa: PLC0415

            return root_status(service.root)

        return JSONResponse(await service.run(found), headers={"cache-control": "no-store"})

    for tool in TOOLS:
        _add_tool(router, service, tool)
    return router


def _via(request: Request) -> str:
    """Return whom a request is counted under."""
    return "hook" if request.headers.get("user-agent") == HOOK else "http"


async def _require_known(request: Request) -> None:
    """Refuse a parameter that the route does not take: a filter that is misspelt would filter nothing."""
    route: APIRoute = request.scope["route"]
    known = [parameter.alias for parameter in route.dependant.query_params]
    if set(request.query_params) - set(known):
        raise WrongInput(f"a parameter is unknown: this address takes {', '.join(known) or 'none'}")


def _add_tool(router: APIRouter, service: Service, tool: Tool[Any, Any]) -> None:
    """Add a tool under `/tools/NAME`, as MCP calls it."""

    async def call(given: Annotated[Json, Body()]) -> Response:
        found = await tool.answer(service, given, "http")
        return JSONResponse(found.as_json(), headers={"cache-control": "no-store"})

    schema = {"content": {"application/json": {"schema": tool.schemas()[0]}}}
    router.add_api_route(
        f"/tools/{tool.name}", call, methods=["POST"], summary=tool.description, name=tool.name,
        openapi_extra={"requestBody": schema},
    )  # fmt: skip


def _skill(service: Service, doc_id: str, file: str | None) -> Json:
    edition, alias, version = service.skills.edition(doc_id)
    told = shown(edition, alias) if file is None else file_of(edition, file)
    return {**told, "index_version": version}


def _raw(service: Service, doc_id: str, file: str | None) -> tuple[bytes, str, str]:
    edition, _, version = service.skills.edition(doc_id)
    path = edition.path_of(file or SKILL_FILE)
    # Whatever a third party calls its file, no browser may run it.
    return edition.read(path), MARKDOWN if mime_of(path) == MARKDOWN else _BINARY, version


async def _tagged(
    service: Service, request: Request, found: Callable[[], Json | tuple[bytes, str, str]], *,
    slow: bool = False,
) -> Response:  # fmt: skip
    """Return an answer under an ETag by served version; one that the caller holds is not worked out again."""
    asked = f"{request.url.path}?{request.url.query}"
    before = await service.run(service.tag)
    if _etag(before, asked) in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=_headers(before, asked))
    answer = await service.run(found, slow=slow)
    content, media, version = answer if isinstance(answer, tuple) else (None, "", answer["index_version"])
    # A publication between the two: the tag is of the version that answered.
    tag = before if before.startswith(f"{version}.") else await service.run(service.tag)
    headers = _headers(tag, asked) if tag.startswith(f"{version}.") else {"cache-control": "no-store"}
    if content is None:
        return JSONResponse(answer, headers=headers)
    return Response(content, headers={**headers, "content-disposition": "attachment"}, media_type=media)


def _etag(tag: str, asked: str) -> str:
    return f'W/"{tag}.{hashlib.sha256(asked.encode("utf-8", "surrogateescape")).hexdigest()[:12]}"'


def _headers(tag: str, asked: str) -> dict[str, str]:
    return {"etag": _etag(tag, asked), "cache-control": "private, no-cache"}
