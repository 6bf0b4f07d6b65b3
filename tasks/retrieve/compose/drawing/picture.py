"""The picture of a plan: groups from top to bottom, a box a step, an arrow a dependency."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks.retrieve.compose.drawing.layout import (
    BAND,
    BOX,
    LINE,
    NAME,
    PAD,
    Box,
    PlanLayout,
    Point,
    Way,
    lay_out_plan,
)
from tasks.retrieve.compose.plan import KINDS
from tasks.retrieve.graph.figure import draw_legend, draw_title, rendered
from tasks.retrieve.graph.layout import MARGIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

# Okabe and Ito's colours, which colour-blind readers can tell apart; dashes tell them apart without colours.
EDGE_LOOKS: dict[str, tuple[str, Any]] = {
    "data": ("#0072B2", "-"), "order": ("#6E6E6E", "--"), "condition": ("#D55E00", ":"),
}  # fmt: skip
_LINE_LOOKS: dict[str, dict[str, Any]] = {
    "condition": {"color": "#B34700", "fontstyle": "italic"},
    "text": {"color": "#111111", "fontweight": "bold"},
    "served": {"color": "#00507D"},
    "sure": {"color": "#555555"},
    "gap": {"color": "#A32020", "fontweight": "bold"},
}
_GAP, _FILLED, _BAND = "#A32020", "#FFFFFF", "#F1F4F7"
_HEAD, _FOOT, _LEAST_WIDTH = 0.8, 0.3, 7.0  # inches above and below the groups, and of the whole
_ROUND = 0.05  # inches


def draw_plan(plan: Mapping[str, Any], form: str) -> bytes:
    """Return the picture of a plan in one of `FORMATS`; the same plan gives the same bytes.

    A step that nothing served fits has a dashed red box. Arrows have the colour and the dashes of their type.

    Raises:
        TerminalError: matplotlib is not installed.
    """
    layout = lay_out_plan(plan)
    width, top = max(layout.width, _LEAST_WIDTH), max(layout.height, LINE) + _HEAD
    shift = (width - layout.width) / 2

    def drawn(axes: Axes) -> None:
        _draw_bands(axes, layout, shift)
        for way in layout.ways:
            _draw_way(axes, way, shift)
        for box in layout.boxes:
            _draw_box(axes, box, shift)
        if not layout.boxes:
            axes.text(MARGIN, LINE / 2, "no step: nothing is asked for", fontsize=8)
        _draw_head(axes, plan, width, top)

    return rendered(width, -_FOOT, top, form, drawn)


def _draw_bands(axes: Axes, layout: PlanLayout, shift: float) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    for number, band in enumerate(layout.bands, start=1):
        low = band.y - band.height
        look: Any = {"color": _BAND, "linewidth": 0, "zorder": 0, "gid": f"group {number}"}
        axes.add_patch(Rectangle((band.x + shift, low), band.width, band.height, **look))
        place = band.x + shift + BAND / 2, band.y - NAME / 2
        # An edge that leads past a name stays behind it.
        behind = {"facecolor": _BAND, "linewidth": 0, "pad": 1}
        axes.text(
            *place, band.name, color="#555555", va="center", parse_math=False, zorder=2.5, bbox=behind
        )  # fmt: skip


def _draw_box(axes: Axes, box: Box, shift: float) -> None:
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415

    look: Any = {"edgecolor": _GAP, "linestyle": (0, (4, 2)), "linewidth": 1.4} if box.gap else {
        "edgecolor": "#444444", "linewidth": 0.8
    }  # fmt: skip
    x, round_ = box.x + shift, _ROUND
    axes.add_patch(
        FancyBboxPatch(
            (x + round_, box.y - box.height + round_), BOX - 2 * round_, box.height - 2 * round_,
            boxstyle=f"round,pad={round_}", facecolor=_FILLED, zorder=3, gid=f"step {box.step}", **look,
        )
    )  # fmt: skip
    for number, (text, kind) in enumerate(box.lines):
        place = x + PAD, box.y - PAD - (number + 0.5) * LINE
        look = _LINE_LOOKS[kind]
        axes.text(*place, text, va="center", fontsize=8, parse_math=False, zorder=4, **look)


def _draw_way(axes: Axes, way: Way, shift: float) -> None:
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415

    colour, style = EDGE_LOOKS[way.kind]
    path = _curve([(x + shift, y) for x, y in way.points])
    look: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "color": colour, "linestyle": style}
    axes.add_patch(FancyArrowPatch(path=path, linewidth=1.2, zorder=2, gid=f"edge {way.kind}", **look))


def _curve(points: list[Point]) -> Path:
    """Return a path that is straight inside rows, and leaves and enters them upright."""
    from matplotlib.path import Path  # noqa: PLC0415

    corners, codes = [points[0]], [Path.MOVETO]
    for number, (one, other) in enumerate(itertools.pairwise(points)):
        if number % 2:
            half = (one[1] + other[1]) / 2
            corners += [(one[0], half), (other[0], half), other]
            codes += [Path.CURVE4] * 3
        else:
            corners.append(other)
            codes.append(Path.LINETO)
    return Path(corners, codes)


def _draw_head(axes: Axes, plan: Mapping[str, Any], width: float, top: float) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    gaps = sum(step["gap"] for step in plan["steps"])
    counts = ", ".join(
        f"{n} {name}{'' if n == 1 else 's'}" for n, name in ((len(plan["steps"]), "step"), (gaps, "gap"))
    )
    draw_title(axes, plan["query"], counts, width, top - 0.22)
    kinds = Counter(edge["type"] for edge in plan["edges"])
    lines = [
        Line2D(
            [], [], color=EDGE_LOOKS[kind][0], linestyle=EDGE_LOOKS[kind][1], label=f"{kind} {kinds[kind]}"
        )
        for kind in KINDS
    ]
    gap = Line2D([], [], color=_GAP, linestyle=(0, (4, 2)), label=f"nothing served fits {gaps}")
    draw_legend(axes, [*lines, gap], top - 0.42)
