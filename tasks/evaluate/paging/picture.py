"""The picture of paging: sufficiency against token reduction, a curve a method, the paper's points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.evaluate.paging.paper import TABLES
from tasks.evaluate.paging.report import CURVES, PagingReport
from tasks.retrieve.page import DEFAULT_METHOD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stay apart for the colour-blind (Okabe and Ito), of routing's picture too.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKS = ("o", "s", "^", "v", "D", "P")


def draw_paging(report: PagingReport, path: Path) -> None:
    """Draw the picture, judged by evidence, into a file of whatever kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install "skillery[draw]"`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.add_subplot()
    _paper(axes)
    for method, colour, mark in zip(CURVES, COLOURS, _MARKS, strict=True):
        rows = [r for r in report.rows if r["method"] == method]
        label = f"{method} (fitted on this bench)" if report.fitted and method == DEFAULT_METHOD else method
        _curve(axes, rows, label=label, color=colour, marker=mark)
    if report.held_out:
        look = {"color": COLOURS[0], "marker": _MARKS[0], "linestyle": "--", "markerfacecolor": "white"}
        _curve(axes, report.held_out, label=f"{DEFAULT_METHOD}, fitted on other documents", **look)
    axes.set_xlabel("token reduction against the body (%)")
    axes.set_ylabel("sufficient (%)")
    axes.set_xlim(-35, 100)
    axes.set_ylim(0, 102)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=8, ncols=3)
    title = "A curve over token budgets for each method, its own limit the large mark; judged by evidence"
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=150)


def _curve(axes: Axes, rows: Sequence[dict[str, Any]], **look: Any) -> None:  # noqa: ANN401
    """Draw a method's rows, the default's above all others."""
    limited = sorted((r for r in rows if r["budget"] is not None), key=lambda r: float(r["token_reduction"]))
    height = 5 if DEFAULT_METHOD in look["label"] else 3
    axes.plot(*_points(limited), markersize=4, zorder=height, **look)
    own = [r for r in rows if r["budget"] is None]
    large = {**look, "label": None, "linestyle": "none"}
    axes.plot(*_points(own), markersize=11, markeredgecolor="black", zorder=height + 1, **large)


def _points(rows: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [100 * r["token_reduction"] for r in rows], [100 * r["sufficient"] for r in rows]


def _paper(axes: Axes) -> None:
    """Mark what the paper's table 4 reports, by another judge on other queries."""
    rows = [r for r in TABLES["Table 4: main results"] if r.sufficient is not None]
    points = [(r.reduction or 0.0, r.sufficient) for r in rows]
    label = "SkillPager's table 4 (a language model judged, other queries)"
    axes.plot(*zip(*points, strict=True), "x", color="black", markersize=8, label=label, zorder=9)
    for row, point in zip(rows, points, strict=True):
        # To the left, where no curve runs, but for the one that stands at the edge.
        left = point[0] >= 0
        axes.annotate(
            f"paper: {row.label}", point, xytext=(-7 if left else 7, 4), textcoords="offset points",
            fontsize=7, ha="right" if left else "left", zorder=2,
        )  # fmt: skip
