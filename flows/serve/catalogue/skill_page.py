"""The page of one skill: its text with typed nodes, what a request needs of it, and whose it is."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from flows.serve.answers.service import Service
from flows.serve.answers.tools import skill_uri
from flows.serve.catalogue.markdown import LinkTo, Rendered, plain
from flows.serve.catalogue.markdown import render as render_markdown
from flows.serve.catalogue.rendering import link_to, of_one_version, render
from storage.schemas import NODE_TYPES, Node
from tasks.models.visible import visible
from tasks.parse.segment.headings import Heading, headings_between
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.paging.context import outline
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition
from tasks.retrieve.revisions.show import shown
from tasks.retrieve.skills.catalogue import SkillReading

_DEEPEST = 6  # an item deeper in lists is shown at this depth
# Characters of a body that are rendered, and what a node counts beside its own: a page takes some seconds.
_MOST_RENDERED, _OF_A_NODE, _MOST_TITLES = 300_000, 150, 1_000
_COLUMNS = 2  # by which an item is deeper than the one around it


@dataclass(frozen=True, slots=True)
class NodePart:
    """A node as HTML; `ordinal` and `node_type` are None where the body has no nodes."""

    html: Markup
    ordinal: int | None = None
    node_type: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, a paragraph of parts, or one part that is a block itself.

    `kind` is `heading`, `paragraph` or `block`; `depth` is a heading's level on the page, 3 to 6, or how deep
    a list item lies, from 0. `title` is a heading as it was written, `inside` the ordinals of the nodes below
    it.
    """

    kind: str
    depth: int
    parts: list[NodePart] = field(default_factory=list)
    title: str = ""
    inside: set[int] = field(default_factory=set)


def blocks_of(body: str, nodes: Sequence[Node], link_to: LinkTo) -> list[Block]:
    """Return a body in order: every non-blank character of it is in exactly one heading or part.

    What comes after the first 300,000 characters of a long body, or thousands of nodes, is not rendered.
    """
    if not nodes:
        return [Block("block", 0, [NodePart(render_markdown(body, link_to).html)])] if body.strip() else []
    spans = [(node.start, node.end) for node in nodes]
    headings = headings_between(body, spans)
    titles = [_title(h, link_to if at < _MOST_TITLES else None) for at, h in enumerate(headings)]
    places, blocks = outline(spans, headings), list[Block]()
    left, end = _MOST_RENDERED, 0  # characters yet to be rendered, and where the node before ends
    *between, last = places.before
    for node, before, above in zip(nodes, between, places.above, strict=True):
        blocks += [titles[heading] for heading in before]
        for heading in above:
            titles[heading].inside.add(node.ordinal)
        left -= len(node.text) + _OF_A_NODE
        column = _column(body, node.start)
        text = _outdented(node.text, column)
        rendered = render_markdown(text, link_to) if left > 0 else plain(text)
        _add(blocks, node, rendered, column, goes_on=body[end : node.start].count("\n") < 2)
        end = node.end
    return [*blocks, *(titles[heading] for heading in last)]


def _title(heading: Heading, link_to: LinkTo | None) -> Block:
    title = None if link_to is None else render_markdown(heading.title, link_to)
    # A title that is like another block, such as `# - one`, is none of it.
    html = title.html if title and title.inline else Markup.escape(visible(heading.title))
    return Block("heading", min(6, heading.level + 2), [NodePart(html)], heading.title)


def _add(blocks: list[Block], node: Node, rendered: Rendered, column: int, *, goes_on: bool) -> None:
    """Add a node: to the paragraph before it, if it goes on there, else as a block of its own."""
    part = NodePart(rendered.html, node.ordinal, node.node_type)
    if node.block != "prose" or not rendered.inline:
        depth = min(_DEEPEST, column // _COLUMNS) if node.block == "list_item" else 0
        blocks.append(Block("block", depth, [part]))
    elif goes_on and blocks and blocks[-1].kind == "paragraph":
        blocks[-1].parts.append(part)
    else:
        blocks.append(Block("paragraph", 0, [part]))


def _column(body: str, start: int) -> int:
    line = body.rfind("\n", 0, start) + 1
    return len(body[line:start].expandtabs(4)) if body[line:start].isspace() else 0


def _outdented(text: str, column: int) -> str:
    """Return the lines of a node as if its first one began its line, since deep lines would be code."""
    return re.sub(rf"\n[ \t]{{1,{column}}}", "\n", text) if column else text


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

    The text is an id or alias, or the end of an id, or a name. Of an empty request nothing is marked; at most
    so much `percent` of the skill's tokens is taken, 100: as much as it needs.

    Raises `UnknownDocument` if no served document is meant; `WrongInput` if the request cannot be used;
    `NotPublished` or `TransientError` if nothing is served, or versions change faster than a page is made;
    `StorageError` if a file of the root cannot be read.
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
