"""The body of a skill as a page shows it: its headings, and each of its nodes apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from flows.serve.catalogue.markdown import LinkTo, is_paragraph, render_blocks, render_inline
from storage.schemas import Node
from tasks.parse.segment.headings import Heading, headings_between
from tasks.retrieve.paging.context import outline

_DEEPEST = 6  # an item deeper in lists is shown at this depth
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
    """Return a body in order: every non-blank character of it is in exactly one heading or part."""
    if not nodes:
        return [Block("block", 0, [NodePart(render_blocks(body, link_to))])] if body.strip() else []
    spans = [(node.start, node.end) for node in nodes]
    headings = headings_between(body, spans)
    titles = [_title(heading, link_to) for heading in headings]
    places, blocks = outline(spans, headings), list[Block]()
    *between, last = places.before
    for node, before, above in zip(nodes, between, places.above, strict=True):
        blocks += [titles[heading] for heading in before]
        for heading in above:
            titles[heading].inside.add(node.ordinal)
        _add(blocks, body, node, nodes[node.ordinal - 1].end if node.ordinal else 0, link_to)
    return [*blocks, *(titles[heading] for heading in last)]


def _title(heading: Heading, link_to: LinkTo) -> Block:
    part = NodePart(render_inline(heading.title, link_to))
    return Block("heading", min(6, heading.level + 2), [part], heading.title)


def _add(blocks: list[Block], body: str, node: Node, before: int, link_to: LinkTo) -> None:
    """Add a node: to the paragraph before it, if it goes on there, else as a block of its own."""
    if node.block != "prose" or not is_paragraph(node.text):
        column = _column(body, node.start)
        depth = min(_DEEPEST, column // _COLUMNS) if node.block == "list_item" else 0
        html = render_blocks(_outdented(node.text, column), link_to)
        blocks.append(Block("block", depth, [NodePart(html, node.ordinal, node.node_type)]))
        return
    part = NodePart(render_inline(node.text, link_to), node.ordinal, node.node_type)
    goes_on = blocks and blocks[-1].kind == "paragraph" and body[before : node.start].count("\n") < 2
    if not goes_on:
        blocks.append(Block("paragraph", 0))
    blocks[-1].parts.append(part)


def _column(body: str, start: int) -> int:
    line = body.rfind("\n", 0, start) + 1
    return len(body[line:start].expandtabs(4)) if body[line:start].isspace() else 0


def _outdented(text: str, column: int) -> str:
    """Return the lines of a node as if its first one began its line, since deep lines would be code."""
    return re.sub(rf"\n[ \t]{{1,{column}}}", "\n", text) if column else text
