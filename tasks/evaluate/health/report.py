"""The report of an evaluation: one HTML page that needs no server and loads and runs nothing."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from storage.root import Root
from tasks.evaluate.health.drift import Drift, compared_with, is_quality
from tasks.evaluate.health.pictures import draw_history

log = logging.getLogger(__name__)
REPORT = "reports/evaluation.html"
_TEMPLATE = Path(__file__).parents[1] / "data" / "evaluation.html"


def render_report(
    history: pl.DataFrame,
    evaluated_at: datetime,
    drifts: Sequence[Drift],
    fallen: Sequence[str],
    misses: Sequence[Mapping[str, Any]],
    pictures: Mapping[str, bytes],
    *,
    compared: int,
) -> str:
    """Return the page; the same arguments make the same page, and every text in it is escaped.

    Args:
        history: Rows of the evaluation history, the evaluation reported among them.
        evaluated_at: The evaluation reported.
        drifts: As `drift_of` returns them; `compared` is what it was told.
        fallen: As `shortcomings` returns them.
        misses: Probes whose skill was not found: `sentence`, `doc_id`, `first`.
        pictures: SVG by title; as images they run no script.
        compared: How many evaluations the drift compares with.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (a report alone needs it)

    version = history.filter(pl.col("evaluated_at") == evaluated_at).item(0, "version")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"figure": _figure, "tone": _tone}
    measures: dict[str, list[Drift]] = {}
    for drift in drifts:
        measures.setdefault(drift.probe, []).append(drift)
    return environment.from_string(_TEMPLATE.read_text("utf-8")).render(
        version=version,
        evaluated_at=f"{evaluated_at:%Y-%m-%d %H:%M:%S}",
        evaluations=history["evaluated_at"].n_unique(),
        compared=compared_with(history, evaluated_at, compared=compared)["evaluated_at"].n_unique(),
        fallen=fallen,
        misses=misses,
        measures=list(measures.items()),
        pictures=[(title, base64.b64encode(svg).decode()) for title, svg in pictures.items()],
    )


def write_report(root: Root, page: str) -> str:
    """Replace the last page; return its file, relative to the root."""
    root.write(REPORT, page.encode("utf-8", "replace"))
    return REPORT


def pictures_of(history: pl.DataFrame, evaluated_at: datetime) -> dict[str, bytes]:
    """Return pictures of the history up to an evaluation, none where matplotlib is not installed."""
    try:
        return draw_history(history.filter(pl.col("evaluated_at") <= evaluated_at))
    except ModuleNotFoundError as error:
        log.warning("the report has no pictures: %s", error)
        return {}


def _figure(value: float | None) -> str:
    """Return a number as a person reads it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _tone(drift: Drift) -> str:
    """Return whether a change is for the better or the worse; of sizes and shares nobody can say."""
    better = {"rose": is_quality(drift.measure), "fell": drift.probe == "latency"}
    worse = {"fell": is_quality(drift.measure), "rose": drift.probe == "latency"}
    if better.get(drift.verdict):
        return "better"
    return "worse" if worse.get(drift.verdict) else ""
