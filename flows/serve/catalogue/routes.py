"""The catalogue's routes, and its smaller pages: a file, a graph, revisions, sources, a report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from flows.serve.answers.forms import LONGEST_ID, LONGEST_PATH, LONGEST_TEXT
from flows.serve.answers.service import Service
from flows.serve.catalogue.rendering import link_to, page_answer, render, static_answer
from flows.serve.catalogue.search_page import SearchForm, search_page
from flows.serve.catalogue.skill_page import skill_page
from flows.settings import load_settings
from storage.errors import EncodingTooLong, WrongInput
from storage.state import read_runs
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.graph.svg import graph_svg
from tasks.retrieve.revisions.history import revisions_of
from tasks.retrieve.revisions.show import compared, file_of

EVALUATION = "reports/evaluation.html"
_RUNS = 30  # the newest, that the report lists
_LONGEST = 200_000  # characters of a file that a page shows


def file_page(service: Service, text: str, path: str) -> str:
    """Return the page of a file of a skill.

    Raises `UnknownDocument` if no served document is meant; `WrongInput` if it has no such file, or its bytes
    are not kept; `Withheld` if the policy keeps the skill's text back; `NotPublished` or `StorageError` as
    `SkillCatalogue.edition`.
    """
    edition, _, version = service.skills.edition(text)
    found = file_of(edition, path)
    said = found.get("text")
    raw = link_to(f"/api/skills/{quote(found['doc_id'])}", file=found["path"], form="raw")
    return render(
        "file.html", file=found, doc_id=found["doc_id"], version=version, raw=raw,
        text=said and said[:_LONGEST], cut=said is not None and len(said) > _LONGEST,
    )  # fmt: skip


def graph_page(service: Service, text: str) -> str:
    """Return the page of a skill's graph; raises as `ServedIndex.document`.

    Where its nodes would have to be encoded first, and that would take long, the graph has no semantic edges.
    """
    doc_id, semantic = service.index.find(text), True
    try:
        graph = graph_of(service.index.document(doc_id))
    except EncodingTooLong:
        document, semantic = service.skills.reading(doc_id, nodes=True).document, False
        if document is None:  # withheld meanwhile
            raise
        graph = graph_of(document)
    skill = link_to("/skill", doc_id=doc_id)
    picture = graph_svg(graph, lambda node: f"{skill}#n{node.ordinal}") if graph.nodes else ""
    return render(
        "graph.html", doc_id=doc_id, graph=graph, picture=Markup(picture),  # noqa: S704 (its texts are escaped)
        nodes=graph.node_counts(), edges=graph.edge_counts(), semantic=semantic,
    )  # fmt: skip


def revisions_page(service: Service, text: str, a: str | None, b: str | None) -> str:
    """Return the page of a document's revisions up to the served one, and of what changed between two.

    `text` is as `skill_page` takes it, `a` the earlier revision, as `differences` takes it (None: the one
    before `b`), and `b` the later one (None: the served one). Raises as `file_page`.
    """
    edition, _, version = service.skills.edition(text)
    doc_id, until = edition.row["doc_id"], edition.revision.fetched_at
    found = [r for r in revisions_of(service.root, doc_id, edition.row["source"]) if r.fetched_at <= until]
    changes, untold = None, None
    try:
        changes = compared(service.root, found, a, b)
    except WrongInput as error:  # there is no such revision, or it was dropped when it was refined
        untold = str(error)
    told = [revision.as_dict() for revision in reversed(found)]
    return render(
        "revisions.html", doc_id=doc_id, found=changes, untold=untold, revisions=told, version=version
    )


def sources_page(service: Service) -> str:
    """Return the page of all sources with their state; raises `StorageError` if a file cannot be read."""
    from flows.commands.operate import source_rows  # noqa: PLC0415 (answers do without what it loads)

    return render("sources.html", sources=source_rows(service.root))


def report_page(service: Service) -> str:
    """Return the report of the last night, and a row for each of the runs before it; raises as above."""
    from flows.commands.operate import root_status  # noqa: PLC0415 (answers do without what it loads)

    runs = [{"flow": "nightly", **run} for run in read_runs(service.root, _RUNS)]
    night = next((run for run in runs if run["flow"] == "nightly"), None)
    evaluated = service.root.exists(EVALUATION)
    return render(
        "report.html", status=root_status(service.root), night=night, runs=runs, evaluated=evaluated
    )


def usage_page(service: Service) -> str:
    """Return the page of what was asked and used in the last 30 days; raises `StorageError` as above."""
    from flows.commands.usage import usage_of  # noqa: PLC0415 (as above)

    return render("usage.html", usage=usage_of(service.root, load_settings(), 30))


PATHS = (
    "/skill", "/file", "/graph", "/revisions", "/sources", "/report", "/usage", "/evaluation", "/static",
)  # fmt: skip
"""The paths of pages, beside `/`."""

_PROGRAMS = ("/api", "/mcp", "/healthz", "/metrics", "/openapi.json", "/.well-known", "/marketplace.json")
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

    async def shown(page: Callable[..., str], *asked: object, slow: bool = False) -> Response:
        return page_answer(await service.run(partial(page, service, *asked), slow=slow))

    @router.get("/")
    async def search(
        q: Text = "", kind: Several = None, licence: Several = None, source: Several = None,
        risk: Several = None, page: Annotated[int, Query(ge=1, le=_MOST_PAGES)] = 1,
    ) -> Response:  # fmt: skip
        chosen = {"kind": kind or [], "licence": licence or [], "source": source or [], "risk": risk or []}
        return await shown(search_page, SearchForm(q.strip(), chosen, page))

    @router.get("/skill")
    async def skill(doc_id: Id, q: Text = "", percent: Annotated[int, Query(ge=1, le=100)] = 100) -> Response:
        return await shown(skill_page, doc_id, q.strip(), percent, slow=True)

    @router.get("/file")
    async def file(doc_id: Id, path: Path) -> Response:
        return await shown(file_page, doc_id, path)

    @router.get("/graph")
    async def graph(doc_id: Id) -> Response:
        return await shown(graph_page, doc_id, slow=True)

    @router.get("/revisions")
    async def revisions(doc_id: Id, a: Hash = None, b: Hash = None) -> Response:
        return await shown(revisions_page, doc_id, a or None, b or None, slow=True)

    @router.get("/sources")
    async def sources() -> Response:
        return await shown(sources_page)

    @router.get("/report")
    async def report() -> Response:
        return await shown(report_page)

    @router.get("/usage")
    async def usage() -> Response:
        return await shown(usage_page, slow=True)

    _add_files(router, service)
    return router


def _add_files(router: APIRouter, service: Service) -> None:
    """Add the report of an evaluation, and the files that pages load."""

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
