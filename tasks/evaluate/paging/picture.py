"""The picture of paging: sufficiency against token reduction, and figures 4 to 6 of SkillPager's paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.evaluate.measures.tables import papers
from tasks.evaluate.paging.report import CURVES, PagingReport
from tasks.retrieve.page import DEFAULT_METHOD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

# Colours that stay apart for the colour-blind (Okabe and Ito), of routing's picture too.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Where the name of a point may stand, in points beside it; the first of equals is taken.
_PLACES = tuple((x, y) for y in (4.0, -10.0, 15.0, -21.0, 26.0) for x in (-7.0, 7.0, 0.0))
_FIGURES = ("Table 5: concept nodes", "Table 6: relevance weight", "Table 7: node budget k")
_MARKS = ("o", "s", "^", "v", "D", "P")


def draw_paging(report: PagingReport, path: Path) -> None:
    """Draw the picture, judged by evidence, into a file of whatever kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install '.[draw]' in Skillery's folder`).
    """
    paging_figure(report).savefig(path, dpi=150)


def paging_figure(report: PagingReport) -> Figure:
    """Return the picture, not yet in a file; errors as `draw_paging`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(9, 10), layout="constrained")
    parts = figure.subplot_mosaic([["curves"] * 3, [*_FIGURES]], height_ratios=[2, 1])
    axes = parts["curves"]
    for title in _FIGURES:
        _beside_paper(parts[title], title, report)
    names = _paper(axes)
    for method, colour, mark in zip(CURVES, COLOURS, _MARKS, strict=True):
        rows = [r for r in report.rows if r["method"] == method and r["sufficient"] is not None]
        if not rows:  # no query has evidence
            continue
        label = f"{method} (scorers fitted on other documents)" if rows[0]["held_out"] else method
        _curve(axes, rows, label=label, color=colour, marker=mark)
    axes.set_xlabel("token reduction against the body (%)")
    axes.set_ylabel("sufficient (%)")
    axes.set_xlim(-35, 100)
    axes.set_ylim(0, 102)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=8, ncols=3)
    title = "A curve over token budgets for each method, its own limit the large mark; judged by evidence"
    axes.set_title(title, fontsize=10)
    figure.draw_without_rendering()  # which settles where the axes lie, and with them the names
    keep_apart(names, [artist for artist in axes.lines if artist.get_linestyle() != "None"])
    return figure


def _beside_paper(axes: Axes, title: str, report: PagingReport) -> None:
    """Draw the shares of a table of the paper, and ours where they were measured."""
    ours = {row["method"]: row["sufficient"] for row in report.rows if row["budget"] is None}
    rows = [row for row in papers("paging")[title] if "sufficient" in row]
    places = range(len(rows))
    axes.plot(places, [row["sufficient"] for row in rows], "x--", color="black")
    known = [
        (n, 100 * ours[row["method"]]) for n, row in enumerate(rows) if ours.get(row["method"]) is not None
    ]
    if known:
        axes.plot(*zip(*known, strict=True), "o-", color=COLOURS[0])
    axes.set_xticks(places, [row["label"] for row in rows], rotation=60, fontsize=7, ha="right")
    axes.set_ylim(0, 102)
    axes.grid(visible=True, alpha=0.3)
    axes.set_title(f"{title} (x: the paper's)", fontsize=8)


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


def _paper(axes: Axes) -> list[Annotation]:
    """Mark what the paper's table 4 reports, by another judge on other queries; return the points' names."""
    rows = [row for row in papers("paging")["Table 4: main results"] if "sufficient" in row]
    points = [(row.get("reduction", 0.0), row["sufficient"]) for row in rows]
    label = "SkillPager's table 4 (a language model judged, other queries)"
    axes.plot(*zip(*points, strict=True), "x", color="black", markersize=8, label=label, zorder=9)
    return [
        axes.annotate(
            f"paper: {row['label']}", point, xytext=_PLACES[0], textcoords="offset points", fontsize=7,
            zorder=9,
        )
        for row, point in zip(rows, points, strict=True)
    ]  # fmt: skip


def keep_apart(names: Sequence[Annotation], curves: Sequence[Line2D]) -> None:
    """Move names around their points until they lie inside the axes, on no other name and on few curves."""
    taken: list[Bbox] = []
    for name in names:
        _place(name, min(_PLACES, key=lambda place: _crowded(name, place, taken, curves)))
        taken.append(name.get_window_extent())


def _crowded(
    name: Annotation, place: tuple[float, float], taken: Sequence[Bbox], curves: Sequence[Line2D]
) -> tuple[int, int]:
    """Return on how many names or edges a name would lie at a place, and on how many curves."""
    _place(name, place)
    box, axes = name.get_window_extent(), name.axes
    assert axes is not None  # noqa: S101 (it was drawn there)
    frame = axes.get_window_extent()
    outside = not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)
    lines = [curve.get_transform().transform_path(curve.get_path()) for curve in curves]
    return sum(box.overlaps(other) for other in taken) + outside, sum(
        line.intersects_bbox(box, filled=False) for line in lines
    )


def _place(name: Annotation, place: tuple[float, float]) -> None:
    name.set_horizontalalignment("right" if place[0] < 0 else "left" if place[0] else "center")
    name.set_position(place)
