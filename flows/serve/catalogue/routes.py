"""The routes of the catalogue's pages, and an error as a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from flows.serve.answers.forms import LONGEST_ID, LONGEST_PATH, LONGEST_TEXT
from flows.serve.answers.service import Service
from flows.serve.catalogue.further_pages import (
    EVALUATION,
    file_page,
    graph_page,
    report_page,
    revisions_page,
    sources_page,
)
from flows.serve.catalogue.rendering import page_answer, render, static_answer
from flows.serve.catalogue.search_page import SearchForm, search_page
from flows.serve.catalogue.skill_page import skill_page

PATHS = ("/skill", "/file", "/graph", "/revisions", "/sources", "/report", "/evaluation", "/static")
"""The paths of pages, beside `/`."""

_PROGRAMS = ("/api", "/mcp", "/healthz", "/metrics", "/openapi.json")
_MOST_PAGES = 100_000
# The report of an evaluation is one file: its style and its pictures lie in it.
_EVALUATION = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; sandbox"
}
Text = Annotated[str, Query(max_length=LONGEST_TEXT)]
Id = Annotated[str, Query(min_length=1, max_length=LONGEST_ID)]
Several = Annotated[list[str] | None, Query()]
Path = Annotated[str, Query(min_length=1, max_length=LONGEST_PATH)]
Hash = Annotated[str | None, Query(max_length=64)]


def catalogue_router(service: Service) -> APIRouter:
    """Return the routes of all pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def search(
        q: Text = "", kind: Several = None, licence: Several = None, source: Several = None,
        risk: Several = None, page: Annotated[int, Query(ge=1, le=_MOST_PAGES)] = 1,
    ) -> Response:  # fmt: skip
        chosen = {"kind": kind or [], "licence": licence or [], "source": source or [], "risk": risk or []}
        asked = SearchForm(q.strip(), chosen, page)
        return page_answer(await service.run(lambda: search_page(service, asked)))

    @router.get("/skill")
    async def skill(
        doc_id: Id,
        q: Text = "",
        percent: Annotated[int, Query(ge=1, le=100)] = 100,
    ) -> Response:
        made = await service.run(lambda: skill_page(service, doc_id, q.strip(), percent), slow=True)
        return page_answer(made)

    @router.get("/file")
    async def file(doc_id: Id, path: Path) -> Response:
        return page_answer(await service.run(lambda: file_page(service, doc_id, path)))

    @router.get("/graph")
    async def graph(doc_id: Id) -> Response:
        return page_answer(await service.run(lambda: graph_page(service, doc_id), slow=True))

    @router.get("/revisions")
    async def revisions(doc_id: Id, a: Hash = None, b: Hash = None) -> Response:
        made = await service.run(lambda: revisions_page(service, doc_id, a or None, b or None), slow=True)
        return page_answer(made)

    _add_state(router, service)
    return router


def _add_state(router: APIRouter, service: Service) -> None:
    """Add the pages that are about no single skill, and the files that pages load."""

    @router.get("/sources")
    async def sources() -> Response:
        return page_answer(await service.run(lambda: sources_page(service)))

    @router.get("/report")
    async def report() -> Response:
        return page_answer(await service.run(lambda: report_page(service)))

    @router.get("/evaluation")
    async def evaluation() -> Response:
        if not await service.run(lambda: service.root.exists(EVALUATION)):
            raise HTTPException(404)
        made = await service.run(lambda: service.root.read(EVALUATION))
        return page_answer(made.decode("utf-8", "replace"), headers=_EVALUATION)

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        found = static_answer(name)
        if found is None:
            raise HTTPException(404)
        return found


def wants_page(request: Request) -> bool:
    """Tell whether a browser asked for a page, so that an error is one too."""
    is_page = not request.url.path.startswith(_PROGRAMS)
    return is_page and "text/html" in request.headers.get("accept", "")


def error_page(status: int, message: str, headers: dict[str, str]) -> Response:
    """Return an error as a page."""
    return page_answer(render("error.html", status=status, message=message), status, headers)
