"""The body of a skill as a page shows it: its headings, and each of its nodes apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from flows.serve.catalogue.markdown import LinkTo, Rendered, plain, render
from storage.schemas import Node
from tasks.models.visible import visible
from tasks.parse.segment.headings import Heading, headings_between
from tasks.retrieve.paging.context import outline

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
        return [Block("block", 0, [NodePart(render(body, link_to).html)])] if body.strip() else []
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
        rendered = render(text, link_to) if left > 0 else plain(text)
        _add(blocks, node, rendered, column, goes_on=body[end : node.start].count("\n") < 2)
        end = node.end
    return [*blocks, *(titles[heading] for heading in last)]


def _title(heading: Heading, link_to: LinkTo | None) -> Block:
    title = None if link_to is None else render(heading.title, link_to)
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
