"""The graph of a skill as an SVG for a page, which gives it its colours; it needs no library."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from storage.schemas import Edge, Node
from tasks.models.visible import visible
from tasks.retrieve.graph.arcs import Point, bend_of, control_of, way_around
from tasks.retrieve.graph.graph import SkillGraph
from tasks.retrieve.graph.layout import LABEL_GAP, ROW, Row, lay_out

_UNIT = 100  # of the SVG, an inch
_MARGIN = 0.15  # inches above the first row and below the last
_DOT, _DROP = 5, 4  # units: a dot's radius, and from a row's middle down to its letters' baseline

_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 6 6" refX="9" refY="3" markerWidth="6" markerHeight="6" '
    'orient="auto"><path d="M0 0 L6 3 L0 6 Z" fill="context-stroke"/></marker></defs>'
)


def graph_svg(graph: SkillGraph, link: Callable[[Node], str]) -> str:
    """Return the graph's nodes, headings and edges as an SVG element with classes instead of colours.

    Nodes have the classes `node` and their type, edges `edge` and theirs; a node links to `link(node)`. Every
    text is escaped. The same graph gives the same text.
    """
    layout = lay_out(graph.nodes)
    top = layout.height + _MARGIN

    def at(x: float, y: float) -> str:
        return f"{x * _UNIT:.1f} {(top - y) * _UNIT:.1f}"

    rows = {row.node.node_id: row for row in layout.rows if row.node}
    middle = layout.height / 2
    edges = [_edge(e, rows[e.src_id], rows[e.dst_id], middle, at) for e in graph.edges]
    width, height = layout.width * _UNIT, (top - ROW + _MARGIN + ROW / 2) * _UNIT
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    counts = f"{len(graph.nodes)} nodes and {len(graph.edges)} edges"
    return (
        f'<svg {size} role="group" aria-label="Graph of {_safe(graph.doc_id)}: {counts}">'
        f"{_ARROW}{''.join(edges)}{''.join(_row(row, top, link) for row in layout.rows)}</svg>"
    )


def _edge(edge: Edge, source: Row, target: Row, middle: float, at: Callable[[float, float], str]) -> str:
    in_order, across = edge.edge_type == "sequence", source.x != target.x
    if across and in_order:
        way = "M" + " L".join(at(*point) for point in way_around(source, target))
    else:
        bend = 0.0 if in_order else bend_of(source, target, middle=middle)
        control: Point = control_of(source, target, bend)
        way = f"M{at(source.x, source.y)} Q{at(*control)} {at(target.x, target.y)}"
    far = " across" if across and not in_order else ""
    return f'<path class="edge {edge.edge_type}{far}" d="{way}"/>'


def _row(row: Row, top: float, link: Callable[[Node], str]) -> str:
    x, y = row.x * _UNIT, (top - row.y) * _UNIT
    label = f'<text x="{x + LABEL_GAP * _UNIT:.1f}" y="{y + _DROP:.1f}">{_safe(row.label)}</text>'
    if row.node is None:
        return f'<g class="heading">{label}</g>'
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_DOT}"/>'
    said = f"<title>{_safe(row.node.node_type.replace('_', ' '))}</title>"
    return f'<a href="{_safe(link(row.node))}" class="node {row.node.node_type}">{said}{dot}{label}</a>'


def _safe(text: str) -> str:
    return escape(visible(text))
