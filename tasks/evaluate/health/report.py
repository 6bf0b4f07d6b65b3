"""The report of an evaluation: one HTML page with pictures; it needs no server and loads nothing."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from storage.root import Root
from tasks.evaluate.health.drift import Drift, compared_with, is_quality
from tasks.evaluate.health.history import LATENCY
from tasks.evaluate.measures.runs import grouped
from tasks.models.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


log = logging.getLogger(__name__)
REPORT = "reports/evaluation.html"
_TEMPLATE = Path(__file__).parents[1] / "data" / "evaluation.html"


def render_report(
    history: pl.DataFrame, evaluated_at: datetime, drifts: Sequence[Drift], fallen: Sequence[str],
    misses: Sequence[Mapping[str, Any]], pictures: Mapping[str, bytes] | None, *, compared: int,
) -> str:  # fmt: skip
    """Return the page; the same arguments make the same page, and every text in it is visible and escaped.

    `history` holds the evaluation reported; `drifts` and `fallen` are of `drift_of` and `shortcomings`,
    `misses` are probes whose skill was not found (`sentence`, `doc_id`, `first`), and `pictures` SVG by
    title, as images, which run no script; None where they cannot be drawn.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (a report alone needs it)

    version = history.filter(pl.col("evaluated_at") == evaluated_at).item(0, "version")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_text)
    environment.filters |= {"figure": _number, "tone": _tone}
    beside = compared_with(history, evaluated_at, compared=compared)
    return environment.from_string(_TEMPLATE.read_text("utf-8")).render(
        version=version, evaluated_at=f"{evaluated_at:%Y-%m-%d %H:%M:%S}",
        evaluations=history["evaluated_at"].n_unique(),
        compared=beside["evaluated_at"].n_unique(), others=version not in beside["version"], fallen=fallen,
        misses=misses, measures=list(grouped(drifts, lambda one: one.probe).items()),
        drawn=pictures is not None,
        pictures=[(title, base64.b64encode(svg).decode()) for title, svg in (pictures or {}).items()],
    )  # fmt: skip


def write_report(root: Root, page: str) -> str:
    """Replace the last page; return its file, relative to the root."""
    root.write(REPORT, page.encode("utf-8", "replace"))
    return REPORT


def pictures_of(history: pl.DataFrame, evaluated_at: datetime) -> dict[str, bytes] | None:
    """Return pictures of the history up to an evaluation, None where matplotlib is not installed."""
    try:
        return draw_history(history.filter(pl.col("evaluated_at") <= evaluated_at))
    except ModuleNotFoundError as error:
        log.warning("the report has no pictures: %s", error)
        return None


def _text(value: Any) -> Any:  # noqa: ANN401 (whatever the template shows)
    return visible(value, lines=True) if isinstance(value, str) else value


def _number(value: float | None) -> str:
    """Return a number as a person reads it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _tone(drift: Drift) -> str:
    """Return whether a change is for the better or the worse; of sizes and shares nobody can say."""
    better = {"rose": is_quality(drift.measure), "fell": drift.probe == LATENCY}
    worse = {"fell": is_quality(drift.measure), "rose": drift.probe == LATENCY}
    if better.get(drift.verdict):
        return "better"
    return "worse" if worse.get(drift.verdict) else ""


_MARKS = "os^vDPX*"
_EVALUATIONS = 30  # that a picture shows
_LINES = {
    "quality: hit@10 by leg": (pl.col("measure") == "hit@10", "found (%)", 100.0),
    "latency of one answer": (pl.col("probe") == LATENCY, "milliseconds", 1.0),
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

    A single point or bar says no more than the page's tables do, so there is none of it. Raises
    ModuleNotFoundError if matplotlib is not installed.
    """
    times = history["evaluated_at"].unique().sort()[-_EVALUATIONS:]
    shown = history.filter(pl.col("evaluated_at").is_in(times.implode()))
    pictures = {}
    for title, (which, unit, factor) in _LINES.items():
        rows = shown.filter(which)
        if rows["evaluated_at"].n_unique() > 1:
            pictures[title] = _lines(rows, times, unit, factor)
    for probe, (title, unit, factor) in _BARS.items():
        rows = shown.filter(pl.col("probe") == probe, pl.col("evaluated_at").is_in(times[-2:].implode()))
        if rows["leg"].n_unique() > 1:
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
        values = group["value"] * factor
        low, high = values - group["low"] * factor, group["high"] * factor - values
        bars = [side.fill_null(0.0).clip(0).to_list() for side in (low, high)]
        # Of points that lie on one another the lower ones are larger, and all are seen.
        axes.errorbar(
            [place[time] for time in group["evaluated_at"]], values.to_list(),
            yerr=None if low.is_null().all() else bars, label=said, marker=_MARKS[i % len(_MARKS)],
            markersize=max(3, 9 - i), markerfacecolor="none", capsize=2, linewidth=1.2, elinewidth=0.6,
            clip_on=False, zorder=3 + i,
        )  # fmt: skip
    axes.set_ylabel(unit)
    axes.set_ylim(0, 100 if unit.endswith("(%)") else None)
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
    series = list(zip(("now", "before"), times[-1:-3:-1], strict=False))
    figure, axes = _figure(0.9 + 0.35 * len(names))
    height = 0.76 / len(series)
    for i, (label, time) in enumerate(series):
        held = dict(rows.filter(pl.col("evaluated_at") == time).select("leg", "value").iter_rows())
        lengths = [factor * held.get(name, 0.0) for name in names]
        shift = height * ((len(series) - 1) / 2 - i)
        axes.barh([place + shift for place in range(len(names))], lengths, height=height, label=label)
    axes.set_yticks(range(len(names)), _readable(names), fontsize=8)
    axes.set_xlabel(unit, fontsize=8)
    # A bar of nearly all would have its axis end at more than all.
    axes.set_xlim(0, min(100.0, axes.get_xlim()[1]) if unit.endswith("(%)") else None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right upper", fontsize=8)
    return _svg(figure)


def _readable(names: Sequence[str]) -> list[str]:
    # A dollar begins mathematics.
    return [visible(name)[:60].replace("$", r"\$") for name in names]


def _svg(figure: Figure) -> bytes:
    from matplotlib import rc_context  # noqa: PLC0415

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "skillery", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
