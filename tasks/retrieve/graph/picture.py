"""The picture of a skill's graph; matplotlib, which draws it, is loaded only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.retrieve.graph.arcs import bend_of, way_around
from tasks.retrieve.graph.figure import draw_legend, draw_title, rendered
from tasks.retrieve.graph.graph import SkillGraph
from tasks.retrieve.graph.layout import LABEL_GAP, ROW, Layout, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can tell apart.
NODE_COLOURS = {
    "step": "#0072B2", "example": "#56B4E9", "param": "#E69F00", "precondition": "#CC79A7",
    "error_handling": "#D55E00", "concept": "#8A8A8A",
}  # fmt: skip
EDGE_STYLES: dict[str, tuple[str, Any]] = {
    "sequence": ("#C8C8C8", "-"), "semantic": ("#009E73", ":"), "reference": ("#0072B2", "--"),
    "condition": ("#D55E00", "-"),
}  # fmt: skip
_HEAD, _FOOT = 0.95, 0.25  # inches above and below the columns
_LEAST_WIDTH = 8.0
_ACROSS = 0.4  # opacity of edges between columns, which cross labels


def draw(graph: SkillGraph, form: str) -> bytes:
    """Return the picture of a graph in one of `FORMATS`: nodes and edges, coloured by type, and a legend.

    The same graph gives the same bytes. Text of an SVG stays text.

    Raises:
        TerminalError: matplotlib is not installed.
    """
    layout = lay_out(graph.nodes)
    width, top = max(layout.width, _LEAST_WIDTH), layout.height + _HEAD

    def drawn(axes: Axes) -> None:
        _draw_edges(axes, graph, layout)
        _draw_rows(axes, layout)
        _draw_head(axes, graph, width, top)

    return rendered(width, ROW - _FOOT, top, form, drawn)


def _draw_rows(axes: Axes, layout: Layout) -> None:
    nodes = [row for row in layout.rows if row.node]
    colours = [NODE_COLOURS[row.node.node_type] for row in nodes if row.node]
    axes.scatter([r.x for r in nodes], [r.y for r in nodes], s=34, c=colours, linewidths=0, zorder=3)
    for row in layout.rows:
        colour, weight = ("#222222", "normal") if row.node else ("#555555", "bold")
        axes.text(
            row.x + LABEL_GAP, row.y, row.label, va="center", color=colour, fontweight=weight,
            parse_math=False, zorder=4,
        )  # fmt: skip


def _draw_edges(axes: Axes, graph: SkillGraph, layout: Layout) -> None:
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415
    from matplotlib.path import Path  # noqa: PLC0415

    places = {row.node.node_id: row for row in layout.rows if row.node}
    for number, edge in enumerate(graph.edges):
        colour, style = EDGE_STYLES[edge.edge_type]
        source, target = places[edge.src_id], places[edge.dst_id]
        in_order, across = edge.edge_type == "sequence", source.x != target.x
        look: Any = {
            "arrowstyle": "-|>", "mutation_scale": 6, "color": colour, "linestyle": style, "linewidth": 0.8,
            "zorder": 1 if in_order else 2, "alpha": _ACROSS if across and not in_order else 1.0,
            "gid": f"edge {number}",
        }  # fmt: skip
        if across and in_order:
            axes.add_patch(FancyArrowPatch(path=Path(way_around(source, target)), **look))
            continue
        bend = 0.0 if in_order else bend_of(source, target, middle=layout.height / 2)
        ends = (source.x, source.y), (target.x, target.y)
        arc = f"arc3,rad={bend:.3f}"
        axes.add_patch(FancyArrowPatch(*ends, connectionstyle=arc, shrinkA=3.2, shrinkB=3.2, **look))


def _draw_head(axes: Axes, graph: SkillGraph, width: float, top: float) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    counts = f"{len(graph.nodes)} nodes, {len(graph.edges)} edges"
    draw_title(axes, graph.doc_id, counts, width, top - 0.22)
    dots = [
        Line2D([], [], marker="o", linestyle="", color=NODE_COLOURS[kind], label=f"{kind} {count}")
        for kind, count in graph.node_counts().items()
    ]
    lines = [
        Line2D([], [], color=EDGE_STYLES[kind][0], linestyle=EDGE_STYLES[kind][1], label=f"{kind} {count}")
        for kind, count in graph.edge_counts().items()
    ]
    draw_legend(axes, dots, top - 0.36)
    draw_legend(axes, lines, top - 0.56)
