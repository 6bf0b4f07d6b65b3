"""The page of one skill: its text with typed nodes, what a request needs of it, and whose it is."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from flows.serve.answers.service import Service
from flows.serve.answers.tools import skill_uri
from flows.serve.catalogue.body import Block, blocks_of
from flows.serve.catalogue.markdown import LinkTo
from flows.serve.catalogue.markdown import render as render_markdown
from flows.serve.catalogue.rendering import link_to, of_one_version, render
from storage.schemas import NODE_TYPES
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition
from tasks.retrieve.revisions.show import shown
from tasks.retrieve.skills.catalogue import SkillReading


@dataclass(frozen=True, slots=True)
class Taken:
    """What a request needs of a skill: `parts` holds the ordinals of the nodes that it takes.

    A node that is taken in part has the text that is, as HTML; the others have None.
    """

    page: Mapping[str, Any]
    parts: Mapping[int, Markup | None]

    @property
    def saved(self) -> float:
        """The share of the document's tokens that the request does without, 0 to 1."""
        whole = self.page["document_tokens"]
        return max(0.0, 1 - self.page["tokens"] / whole) if whole else 0.0

    def has(self, heading: Block) -> bool:
        """Tell whether a heading was put back above a node that is taken."""
        return not heading.inside.isdisjoint(self.parts) and heading.title in self.page["context"]


def skill_page(service: Service, text: str, request: str, percent: int) -> str:
    """Return the page of the skill that a text means, with what a request takes of it marked.

    Args:
        service: What is served.
        text: An id or alias, or the end of an id, or a name.
        request: What a reader wants to know; empty: nothing is marked.
        percent: The most that may be taken, in percent of the skill's tokens; 100: as much as it needs.

    Raises:
        UnknownDocument: No served document is meant.
        WrongInput: The request cannot be used.
        NotPublished, TransientError: Nothing is served, or versions change faster than a page is made.
        StorageError: A file of the root cannot be read.
    """

    def made() -> str | None:
        read = service.skills.reading(text, nodes=True)
        has_nodes = read.document is not None and read.document.nodes
        taken = _taken(service, read, request, percent) if request and has_nodes else None
        same = taken is None or taken.page["index_version"] == read.version
        return _rendered(read, request, percent, taken) if same else None

    return of_one_version(made)


def _taken(service: Service, read: SkillReading, request: str, percent: int) -> Taken:
    doc_id, budget = read.edition.row["doc_id"], None if percent == 100 else percent / 100
    found = service.index.page(doc_id, request, budget=budget, method=DEFAULT_METHOD)
    link = _file_links(read.edition)
    parts = {
        int(n["node_id"].rpartition("#")[2]): None if n["whole"] else render_markdown(n["text"], link).html
        for n in found["nodes"]
    }
    return Taken(found, parts)


def _rendered(read: SkillReading, request: str, percent: int, taken: Taken | None) -> str:
    edition, document = read.edition, read.document
    told = shown(edition, read.alias)
    counts = Counter(node.node_type for node in document.nodes) if document else Counter()
    types = [(kind, counts[kind]) for kind in NODE_TYPES if kind in counts]
    return render(
        "skill.html", doc_id=edition.row["doc_id"], alias=read.alias, skill=told, version=read.version,
        blocks=_blocks(document, edition), types=types, tokens=document and document.n_tokens,
        request=request, percent=percent, taken=taken, uri=skill_uri(edition),
    )  # fmt: skip


def _blocks(document: PagedDocument | None, edition: Edition) -> list[Block]:
    return [] if document is None else blocks_of(document.body, document.nodes, _file_links(edition))


def _file_links(edition: Edition) -> LinkTo:
    """Return what gives the pages of a skill's own files, whose paths are relative to its folder."""
    files = {SKILL_FILE, *(file["path"] for file in edition.row["files"] or ())}

    def link(path: str) -> str | None:
        own = posixpath.normpath(path)
        return link_to("/file", doc_id=edition.row["doc_id"], path=own) if own in files else None

    return link
