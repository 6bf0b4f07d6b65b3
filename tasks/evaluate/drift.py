"""Drift: the last evaluation beside those before it, and whether it fell below what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import polars as pl

_KEY = ["probe", "leg", "measure"]
# Of these, less is worse; what else is measured is shown, and judged by nobody but its reader.
_QUALITY = ("hit@", "mrr@", "sufficient", "coverage")
# The legs that answer users: one of these that finds little is no service, however it was before.
_ANSWERING = ("fused", "served")

Verdict = Literal["new", "steady", "rose", "fell"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What an evaluation must reach.

    Args:
        min_found: Least hit@10 of the legs that answer users, 0 to 1.
        max_fall: How far, 0 to 1, a measure of quality may lie below the median of the evaluations before.
        max_ms: Most milliseconds of the 95th percentile of a search; None: any.
        compared: Evaluations before that are looked back at.
    """

    min_found: float = 0.5
    max_fall: float = 0.05
    max_ms: float | None = None
    compared: int = 7


@dataclass(frozen=True, slots=True)
class Drift:
    """One measure now, and how it was: `before` is the median of earlier evaluations, None without any.

    `change` is `value - before`. The verdict is `steady` while the 95 % interval of `value` holds `before`; a
    measure without an interval is steady within a tenth.
    """

    probe: str
    leg: str
    measure: str
    value: float
    before: float | None
    change: float | None
    verdict: Verdict


def drift_of(history: pl.DataFrame, *, compared: int) -> list[Drift]:
    """Compare the last evaluation of a history with the ones before; a measure that is gone is not listed.

    Args:
        history: Rows of the evaluation history.
        compared: How many evaluations before the last are looked back at.
    """
    if history.is_empty():
        return []
    times = history["evaluated_at"].unique().sort(descending=True)
    now = history.filter(pl.col("evaluated_at") == times[0])
    earlier = history.filter(pl.col("evaluated_at").is_in(times[1 : 1 + compared].implode()))
    before = earlier.group_by(_KEY).agg(before=pl.col("value").median())
    joined = now.join(before, on=_KEY, how="left", maintain_order="left")
    return [_drift(row) for row in joined.to_dicts()]


def _drift(row: dict[str, Any]) -> Drift:
    before, value = row["before"], row["value"]
    change = None if before is None else value - before
    probe, leg, measure = (str(row[name]) for name in _KEY)
    return Drift(probe, leg, measure, value, before, change, _verdict(row, before, value))


def _verdict(row: dict[str, Any], before: float | None, value: float) -> Verdict:
    if before is None:
        return "new"
    margin = 0.1 * abs(before)
    low, high = (value - margin, value + margin) if row["low"] is None else (row["low"], row["high"])
    if high < before:
        return "fell"
    return "rose" if low > before else "steady"


def shortcomings(drifts: Sequence[Drift], thresholds: Thresholds) -> list[str]:
    """Return what fell below the thresholds, a line each with its figures; none: all is well."""
    found = []
    for d in drifts:
        name = f"{d.probe}, {d.leg}: {d.measure} is {d.value:.3f}"
        if d.measure == "hit@10" and d.leg in _ANSWERING and d.value < thresholds.min_found:
            found.append(f"{name}, must be at least {thresholds.min_found:g}")
        elif (
            is_quality(d.measure)
            and d.verdict == "fell"
            and d.change is not None
            and -d.change > thresholds.max_fall
        ):
            found.append(f"{name}, was {d.before:.3f}: it may fall by {thresholds.max_fall:g}")
        elif _slow(d, thresholds.max_ms):
            found.append(f"{name}, may be at most {thresholds.max_ms:g}")
    return found


def is_quality(measure: str) -> bool:
    """Tell whether less of a measure is worse."""
    return measure.startswith(_QUALITY)


def _slow(drift: Drift, max_ms: float | None) -> bool:
    is_search = (drift.probe, drift.leg, drift.measure) == ("latency", "search", "p95_ms")
    return max_ms is not None and is_search and drift.value > max_ms


def drift_rows(drifts: Sequence[Drift]) -> list[dict[str, Any]]:
    """Return drifts as rows of a table a person reads, numbers to four digits."""
    return [
        {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in asdict(drift).items()}
        for drift in drifts
    ]
