"""Sufficiency against token reduction: every method a curve over its budgets, the paper's points marked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.evaluate.paging_paper import TABLES
from tasks.evaluate.paging_report import CURVES, PagingReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stay apart for the colour-blind (Okabe and Ito).
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKS = ("o", "s", "^", "v", "D", "P")


def draw_paging(report: PagingReport, path: Path) -> None:
    """Draw the picture into a file of whatever kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install "skillery[draw]"`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    for method, colour, mark in zip(CURVES, _COLOURS, _MARKS, strict=True):
        rows = sorted(
            (r for r in report.rows if r["method"] == method and r["budget"] is not None), key=_reduction
        )
        points = [(100 * _reduction(r), 100 * r["sufficient"]) for r in rows]
        axes.plot(*zip(*points, strict=True), color=colour, marker=mark, markersize=4, label=method)
        own = report.row(method)
        axes.plot(
            100 * _reduction(own), 100 * own["sufficient"], marker=mark, markersize=11, color=colour,
            markeredgecolor="black", linestyle="none",
        )  # fmt: skip
    _paper(axes)
    axes.set_xlabel("token reduction against the body (%)")
    axes.set_ylabel("sufficient (%)")
    axes.set_xlim(-35, 100)
    axes.set_ylim(0, 102)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower left", fontsize=8)
    axes.set_title("Paging, judged by evidence: large marks are without a budget", fontsize=10)
    figure.savefig(path, dpi=150)


def _reduction(row: dict[str, Any]) -> float:
    return float(row["token_reduction"])


def _paper(axes: Axes) -> None:
    """Mark what the paper's table 4 reports, by another judge on other queries."""
    rows = [r for r in TABLES["Table 4: main results"] if r.sufficient is not None]
    points = [(r.reduction or 0.0, r.sufficient) for r in rows]
    label = "paper's table 4 (a language model judged, other queries)"
    axes.plot(*zip(*points, strict=True), "x", color="black", markersize=8, label=label)
    for row, point in zip(rows, points, strict=True):
        axes.annotate(row.label, point, xytext=(6, 5), textcoords="offset points", fontsize=7)
