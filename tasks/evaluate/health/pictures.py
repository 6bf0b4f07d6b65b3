"""The evaluation history in pictures: SVG for a page that opens without a server."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EVALUATIONS = 30  # that a picture shows
_LINES = {
    "quality: hit@10 by leg": (pl.col("measure") == "hit@10", "found (%)", 100.0),
    "latency of one answer": (pl.col("probe") == "latency", "milliseconds", 1.0),
    "rows of the tables": ((pl.col("probe") == "size") & (pl.col("measure") == "rows"), "rows", 1.0),
    "bytes of the tables": ((pl.col("probe") == "size") & (pl.col("measure") == "bytes"), "megabytes", 1e-6),
}
_BARS = {
    "dropped": ("dropped documents by reason", "documents", 1.0),
    "classifier mix": ("nodes by classifier", "share of nodes (%)", 100.0),
    "node type mix": ("nodes by type", "share of nodes (%)", 100.0),
}


def draw_history(history: pl.DataFrame) -> dict[str, bytes]:
    """Return pictures by title, as SVG that is the same for the same history.

    Args:
        history: Rows of the evaluation history.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install "skillery[draw]"`).
    """
    times = history["evaluated_at"].unique().sort()[-_EVALUATIONS:]
    shown = history.filter(pl.col("evaluated_at").is_in(times.implode()))
    pictures = {}
    for title, (which, unit, factor) in _LINES.items():
        rows = shown.filter(which)
        if not rows.is_empty():
            pictures[title] = _lines(rows, times, unit, factor)
    for probe, (title, unit, factor) in _BARS.items():
        rows = shown.filter(pl.col("probe") == probe)
        if not rows.is_empty():
            pictures[title] = _bars(rows, times, unit, factor)
    return pictures


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(7.5, height), layout="constrained")
    return figure, figure.add_subplot()


def _lines(rows: pl.DataFrame, times: pl.Series, unit: str, factor: float) -> bytes:
    """Draw a line a leg over evaluations, the 95 % intervals as bars where there are any."""
    figure, axes = _figure(3.6)
    place = {time: i for i, time in enumerate(times)}
    several = rows["measure"].n_unique() > 1
    groups = rows.group_by("probe", "leg", "measure", maintain_order=True)
    for i, ((probe, leg, measure), group) in enumerate(groups):
        said = f"{leg}, {measure}" if several else f"{leg}: {probe}"
        # Lines that lie on one another stand a little apart.
        at = [place[time] + 0.03 * i for time in group["evaluated_at"]]
        values = group["value"] * factor
        low = (values - group["low"] * factor).fill_null(0.0).clip(0)
        high = (group["high"] * factor - values).fill_null(0.0).clip(0)
        axes.errorbar(
            at, values.to_list(), yerr=[low.to_list(), high.to_list()], label=said, marker="o",
            markersize=4, capsize=2, linewidth=1.2, elinewidth=0.6,
        )  # fmt: skip
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    _mark_times(axes, times)
    figure.legend(loc="outside lower center", fontsize=8, ncols=3)
    return _svg(figure)


def _mark_times(axes: Axes, times: pl.Series) -> None:
    step = max(1, len(times) // 8)
    marks = range(0, len(times), step)
    axes.set_xticks(list(marks), [f"{times[i]:%d %b %H:%M}" for i in marks], fontsize=7)
    axes.set_xlim(-0.5, len(times) - 0.5)
    axes.grid(visible=True, alpha=0.3)


def _bars(rows: pl.DataFrame, times: pl.Series, unit: str, factor: float) -> bytes:
    """Draw a bar a name for the last evaluation, and beside it one for the evaluation before."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 (drawing alone needs it)

    names = sorted(rows["leg"].unique(), reverse=True)
    figure, axes = _figure(0.9 + 0.35 * len(names))
    for label, time, shift in zip(("now", "before"), times[-1:-3:-1], (0.2, -0.2), strict=False):
        held = dict(rows.filter(pl.col("evaluated_at") == time).select("leg", "value").iter_rows())
        lengths = [factor * held.get(name, 0.0) for name in names]
        axes.barh([i + shift for i in range(len(names))], lengths, height=0.38, label=label)
    axes.set_yticks(range(len(names)), _readable(names), fontsize=8)
    axes.set_xlabel(unit, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right upper", fontsize=8)
    return _svg(figure)


def _readable(names: Sequence[str]) -> list[str]:
    # A dollar begins mathematics; what is not printable would make no XML.
    return ["".join(c if c.isprintable() else "?" for c in name)[:60].replace("$", r"\$") for name in names]


def _svg(figure: Figure) -> bytes:
    from matplotlib import rc_context  # noqa: PLC0415

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "skillery", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
