"""SVG of a picture: dots and their labels in columns, arcs between them; of a skill's graph or a plan.

A page gets an element with classes and no colours; a file has colours, a title and a legend of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from storage.schemas import Node
from tasks.models.visible import visible
from tasks.retrieve.graph.graph import SkillGraph
from tasks.retrieve.graph.layout import (
    CHARACTER,
    LABEL_GAP,
    MARGIN,
    ROW,
    Layout,
    Line,
    Row,
    lay_out,
    node_lines,
    one_line,
)

_UNIT = 100  # of the SVG, an inch
_EDGE = 0.15  # inches above the first row and below the last
_DOT, _DROP = 5, 4  # units: a dot's radius, and from a row's middle down to its letters' baseline
# Inches: the largest distance of an arc from its chord, a dot's radius, and where a sequence that goes on in
# the next column runs: so high above the bottom, and so far to the left of the column.
_BULGE, _RADIUS, _BELOW, _BESIDE = 0.55, 0.045, 0.06, 0.3
# Inches, of a file: what its title and legend need above, its least width, a sign of the legend with the
# space after its text, and a character of the title.
_HEAD, _LEAST_WIDTH, _SIGN, _TITLE_CHARACTER = 0.9, 8.0, 0.4, 0.085

_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 6 6" refX="9" refY="3" markerWidth="6" markerHeight="6" '
    'orient="auto"><path d="M0 0 L6 3 L0 6 Z" fill="context-stroke"/></marker></defs>'
)
_STYLE = (
    "text{fill:#222;font:10px system-ui,sans-serif}.title{font-size:14px;font-weight:700}"
    ".heading text{fill:#555;font-weight:700}.edge{fill:none;stroke-width:1.2}.across{opacity:.4}"
)
Point = tuple[float, float]
Look = tuple[str, str]  # a colour, and the dashes of a line
# Okabe and Ito's colours, which colour-blind readers can tell apart; dashes tell lines apart without them.
NODE_LOOKS: Mapping[str, Look] = {
    "step": ("#0072B2", ""), "example": ("#56B4E9", ""), "param": ("#E69F00", ""),
    "precondition": ("#CC79A7", ""), "error_handling": ("#D55E00", ""), "concept": ("#8A8A8A", ""),
}  # fmt: skip
EDGE_LOOKS: Mapping[str, Look] = {
    "sequence": ("#C8C8C8", ""), "semantic": ("#009E73", "2 3"), "reference": ("#0072B2", "6 3"),
    "condition": ("#D55E00", ""),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dot:
    """What a line with a key stands for: its class, its tooltip, and where it leads."""

    kind: str
    title: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Arc:
    """An edge between two dots by their keys; `onward`: it joins each with the next one, in order."""

    source: str
    target: str
    kind: str
    onward: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn: lines, the dots of those with a key, and arcs between dots."""

    lines: Sequence[Line]
    dots: Mapping[str, Dot]
    arcs: Sequence[Arc]


@dataclass(frozen=True, slots=True)
class Legend:
    """The title of a file, and a line each of dots and arcs: their looks by class, and what each means."""

    title: str
    counts: str
    dots: Mapping[str, tuple[Look, str]]
    arcs: Mapping[str, tuple[Look, str]]


def graph_svg(graph: SkillGraph, link: Callable[[Node], str]) -> str:
    """Return the graph's nodes, headings and edges as an SVG element with classes instead of colours.

    Nodes have the classes `node` and their type, edges `edge` and theirs; a node links to `link(node)`. Every
    text is escaped. The same graph gives the same text.
    """
    layout = lay_out(node_lines(graph.nodes))
    top = layout.height + _EDGE
    width, height = layout.width * _UNIT, (top - ROW + _EDGE + ROW / 2) * _UNIT
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    counts = f"{len(graph.nodes)} nodes and {len(graph.edges)} edges"
    return (
        f'<svg {size} role="group" aria-label="Graph of {_safe(graph.doc_id)}: {counts}">'
        f"{_ARROW}{_drawn(_picture(graph, link), layout, top)}</svg>"
    )


def graph_file(graph: SkillGraph) -> bytes:
    """Return the graph as an SVG file, coloured by type; the same graph gives the same bytes."""
    nodes, edges = graph.node_counts(), graph.edge_counts()
    counts = f"{len(graph.nodes)} nodes, {len(graph.edges)} edges"
    dots = {kind: (look, f"{kind} {nodes[kind]}") for kind, look in NODE_LOOKS.items()}
    arcs = {kind: (look, f"{kind} {edges[kind]}") for kind, look in EDGE_LOOKS.items()}
    picture = _picture(graph, None)
    return svg_file(picture, lay_out(picture.lines), Legend(graph.doc_id, counts, dots, arcs))


def _picture(graph: SkillGraph, link: Callable[[Node], str] | None) -> Picture:
    dots = {
        node.node_id: Dot(node.node_type, node.node_type.replace("_", " "), link(node) if link else None)
        for node in graph.nodes
    }
    arcs = [Arc(e.src_id, e.dst_id, e.edge_type, e.edge_type == "sequence") for e in graph.edges]
    return Picture(node_lines(graph.nodes), dots, arcs)


def svg_file(picture: Picture, layout: Layout, legend: Legend) -> bytes:
    """Return a picture as an SVG file with title, legend and colours; every text is escaped."""
    looks = {**legend.dots, **legend.arcs}
    texts = ([text for _, text in part.values()] for part in (legend.dots, legend.arcs))
    signs = max(2 * MARGIN + sum(2 * _SIGN + len(text) * CHARACTER for text in part) for part in texts)
    inches = max(layout.width, _LEAST_WIDTH, signs)
    top = layout.height + _EDGE + _HEAD
    width, height = inches * _UNIT, (top + _EDGE) * _UNIT
    styles = [f".node.{kind} circle{{fill:{colour}}}" for kind, ((colour, _), _) in legend.dots.items()]
    styles += [
        f".edge.{kind}{{stroke:{colour};stroke-dasharray:{dashes or 'none'};marker-end:url(#arrow-{kind})}}"
        for kind, ((colour, dashes), _) in legend.arcs.items()
    ]
    markers = [
        _ARROW.removeprefix("<defs>").removesuffix("</defs>")
        .replace('"arrow"', f'"arrow-{kind}"').replace("context-stroke", looks[kind][0][0])
        for kind in legend.arcs
    ]  # fmt: skip
    title = one_line(legend.title, int(inches / _TITLE_CHARACTER) - len(legend.counts) - 8)
    x = MARGIN * _UNIT
    head = f'<text class="title" x="{x:.0f}" y="26">{_safe(title)}: {_safe(legend.counts)}</text>'
    signs_of = _signs(legend.dots, 46, arcs=False) + _signs(legend.arcs, 66, arcs=True)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}">'
        f"<style>{_STYLE}{''.join(styles)}</style><defs>{''.join(markers)}</defs>"
        f'<rect width="100%" height="100%" fill="#fff"/>{head}{signs_of}'
        f"{_drawn(picture, layout, top)}</svg>\n"
    ).encode()


def _signs(part: Mapping[str, tuple[Look, str]], y: int, *, arcs: bool) -> str:
    found, x = [], MARGIN
    for kind, (_, text) in part.items():
        at, end = x * _UNIT, (x + _SIGN - 0.1) * _UNIT
        sign = (
            f'<path class="edge {kind}" d="M{at:.1f} {y} H{end:.1f}"/>'
            if arcs
            else f'<g class="node {kind}"><circle cx="{end - 8:.1f}" cy="{y}" r="{_DOT}"/></g>'
        )
        found.append(f'{sign}<text x="{(x + _SIGN) * _UNIT:.1f}" y="{y + _DROP}">{_safe(text)}</text>')
        x += 2 * _SIGN + len(text) * CHARACTER
    return "".join(found)


def _drawn(picture: Picture, layout: Layout, top: float) -> str:
    """Return arcs and rows as SVG; `top` is where the picture's upper edge lies, in the layout's inches."""

    def at(x: float, y: float) -> str:
        return f"{x * _UNIT:.1f} {(top - y) * _UNIT:.1f}"

    rows = {row.key: row for row in layout.rows if row.key is not None}
    arcs = [_arc(arc, rows[arc.source], rows[arc.target], layout.height / 2, at) for arc in picture.arcs]
    return "".join([*arcs, *(_row(row, top, picture.dots) for row in layout.rows)])


def _arc(arc: Arc, source: Row, target: Row, middle: float, at: Callable[[float, float], str]) -> str:
    across = source.x != target.x
    if across and arc.onward:
        way = "M" + " L".join(at(*point) for point in _way_around(source, target))
    else:
        bend = 0.0 if arc.onward else _bend(source, target, middle=middle)
        control = _control(source, target, bend)
        way = f"M{at(source.x, source.y)} Q{at(*control)} {at(target.x, target.y)}"
    far = " across" if across and not arc.onward else ""
    return f'<path class="edge {arc.kind}{far}" d="{way}"/>'


def _way_around(source: Row, target: Row) -> list[Point]:
    """Return the way from the end of a column to the next one: below all labels, then between the columns."""
    below, beside = _BELOW, target.x - _BESIDE
    corners = [(source.x, below), (beside, below), (beside, target.y)]
    return [(source.x, source.y - _RADIUS), *corners, (target.x - _RADIUS, target.y)]


def _bend(source: Row, target: Row, *, middle: float) -> float:
    """Return an arc's curvature: in its column to the left, away from labels, else towards the middle.

    An arc is quadratic: its control point lies beside the middle of its chord, at the curvature times the
    chord. An arc between columns that bulged outwards would run through the legend, or out of the picture.
    """
    length = math.dist((source.x, source.y), (target.x, target.y))
    # The distance of an arc from its chord is half its curvature times the chord.
    bend = min(0.6, 2 * _BULGE / max(length, 1e-6))
    if source.x == target.x:
        return -bend if source.y < target.y else bend
    downwards = (source.y + target.y) / 2 > middle
    return bend if downwards == (source.x < target.x) else -bend


def _control(source: Row, target: Row, bend: float) -> Point:
    dx, dy = target.x - source.x, target.y - source.y
    return (source.x + target.x) / 2 + bend * dy, (source.y + target.y) / 2 - bend * dx


def _row(row: Row, top: float, dots: Mapping[str, Dot]) -> str:
    x, y = row.x * _UNIT, (top - row.y) * _UNIT
    label = f'<text x="{x + LABEL_GAP * _UNIT:.1f}" y="{y + _DROP:.1f}">{_safe(row.label)}</text>'
    if row.key is None:
        return f'<g class="{"heading" if row.heading else "note"}">{label}</g>'
    dot = dots[row.key]
    drawn = f'<title>{_safe(dot.title)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{_DOT}"/>{label}'
    if dot.link is None:
        return f'<g class="node {dot.kind}">{drawn}</g>'
    return f'<a href="{_safe(dot.link)}" class="node {dot.kind}">{drawn}</a>'


def _safe(text: str) -> str:
    return escape(visible(text))
