"""The HTTP API: what the commands search, page, show and status print as JSON, and every tool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from flows.commands.queries import require_page_options, search_filters
from flows.commands.skills.reading import file_of
from flows.serve.answers.forms import LONGEST_ID, LONGEST_PATH, LONGEST_TEXT
from flows.serve.answers.service import Service
from flows.serve.answers.tool import Tool
from flows.serve.answers.tools import TOOLS
from storage.errors import WrongInput
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.revisions.edition import SKILL_FILE
from tasks.retrieve.revisions.show import shown
from tasks.retrieve.skills.bundle import MARKDOWN, mime_of

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
        min_fit: Annotated[float | None, Query(ge=0, le=1)] = None,
    ) -> Response:  # fmt: skip
        def found() -> Json:
            filters = search_filters(kind, licence, source, risk)
            return service.index.search(q, k, filters=filters, explain=explain, min_fit=min_fit)

        return await _tagged(service, request, found)

    @router.get("/page", summary="Return the parts of a skill that a request needs.")
    async def page(
        request: Request, doc_id: Id, q: Text, budget: float | None = None, method: str = DEFAULT_METHOD
    ) -> Response:
        def found() -> Json:
            require_page_options([method], [budget])
            return service.index.page(doc_id, q, budget=budget, method=method)

        return await _tagged(service, request, found, slow=True)

    @router.get("/skills/{doc_id:path}", summary="Show a skill, or with `file` one of its files.")
    async def skill(
        request: Request, doc_id: str,
        file: Annotated[str | None, Query(min_length=1, max_length=LONGEST_PATH)] = None,
        form: Literal["json", "raw"] = "json",
    ) -> Response:  # fmt: skip
        if not doc_id or len(doc_id) > LONGEST_ID:
            msg = f"the id has {len(doc_id):,} characters: give 1 to {LONGEST_ID:,}"
            raise WrongInput(msg)
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


async def _require_known(request: Request) -> None:
    """Refuse a parameter that the route does not take: a filter that is misspelt would filter nothing."""
    route: APIRoute = request.scope["route"]
    known = [parameter.alias for parameter in route.dependant.query_params]
    if set(request.query_params) - set(known):
        msg = f"a parameter is unknown: this address takes {', '.join(known) or 'none'}"
        raise WrongInput(msg)


def _add_tool(router: APIRouter, service: Service, tool: Tool[Any, Any]) -> None:
    """Add a tool under `/tools/NAME`, as MCP calls it."""

    async def call(given: Annotated[Json, Body()]) -> Response:
        found = await tool.answer(service, given)
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
    service: Service,
    request: Request,
    found: Callable[[], Json | tuple[bytes, str, str]],
    *,
    slow: bool = False,
) -> Response:
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
