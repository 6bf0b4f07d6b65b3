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
from tasks.evaluate.health.history import LATENCY
from tasks.evaluate.health.pictures import draw_history
from tasks.models.visible import visible

log = logging.getLogger(__name__)
REPORT = "reports/evaluation.html"
_TEMPLATE = Path(__file__).parents[1] / "data" / "evaluation.html"


def render_report(
    history: pl.DataFrame,
    evaluated_at: datetime,
    drifts: Sequence[Drift],
    fallen: Sequence[str],
    misses: Sequence[Mapping[str, Any]],
    pictures: Mapping[str, bytes] | None,
    *,
    compared: int,
) -> str:
    """Return the page; the same arguments make the same page, and every text in it is visible and escaped.

    Args:
        history: Rows of the evaluation history, the evaluation reported among them.
        evaluated_at: The evaluation reported.
        drifts: As `drift_of` returns them; `compared` is what it was told.
        fallen: As `shortcomings` returns them.
        misses: Probes whose skill was not found: `sentence`, `doc_id`, `first`.
        pictures: SVG by title, as images, which run no script; None where they cannot be drawn.
        compared: How many evaluations the drift compares with.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (a report alone needs it)

    version = history.filter(pl.col("evaluated_at") == evaluated_at).item(0, "version")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_text)
    environment.filters |= {"figure": _figure, "tone": _tone}
    measures: dict[str, list[Drift]] = {}
    for drift in drifts:
        measures.setdefault(drift.probe, []).append(drift)
    return environment.from_string(_TEMPLATE.read_text("utf-8")).render(
        version=version,
        evaluated_at=f"{evaluated_at:%Y-%m-%d %H:%M:%S}",
        evaluations=history["evaluated_at"].n_unique(),
        **_beside(version, compared_with(history, evaluated_at, compared=compared)),
        fallen=fallen,
        misses=misses,
        measures=list(measures.items()),
        drawn=pictures is not None,
        pictures=[(title, base64.b64encode(svg).decode()) for title, svg in (pictures or {}).items()],
    )


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


def _beside(version: str, compared: pl.DataFrame) -> dict[str, int | bool]:
    """Return how many evaluations one of a version is compared with, and whether they are of others."""
    others = version not in compared["version"]
    return {"compared": compared["evaluated_at"].n_unique(), "others": others}


def _text(value: Any) -> Any:  # noqa: ANN401 (whatever the template shows)
    return visible(value, lines=True) if isinstance(value, str) else value


def _figure(value: float | None) -> str:
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
