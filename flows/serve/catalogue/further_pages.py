"""Further pages: a file of a skill, its graph, its revisions; all sources, and the report of nights."""

from __future__ import annotations

from urllib.parse import quote

from markupsafe import Markup

from flows.commands.skills.reading import file_of
from flows.serve.answers.service import Service
from flows.serve.catalogue.rendering import link_to, render
from storage.errors import EncodingTooLong, WrongInput
from storage.state import read_runs
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.graph.svg import graph_svg
from tasks.retrieve.revisions.differences import compared
from tasks.retrieve.revisions.history import revisions_of

EVALUATION = "reports/evaluation.html"
_RUNS = 30  # the newest, that the report lists
_LONGEST = 200_000  # characters of a file that a page shows


def file_page(service: Service, text: str, path: str) -> str:
    """Return the page of a file of a skill.

    Raises:
        UnknownDocument: No served document is meant.
        WrongInput: It has no such file, or its bytes are not kept.
        Withheld: The policy keeps the skill's text back.
        NotPublished, StorageError: As `SkillCatalogue.edition`.
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

    Args:
        service: What is served.
        text: As `skill_page` takes it.
        a: The earlier revision, as `differences` takes it; None: the one before `b`.
        b: The later one; None: the served one.

    Raises:
        UnknownDocument, Withheld, NotPublished, StorageError: As `file_page`.
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
