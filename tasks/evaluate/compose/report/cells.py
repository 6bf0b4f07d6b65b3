"""Cells of the report's tables: shares, intervals, and what stands where there is no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.evaluate.compose.methods import METHODS
from tasks.evaluate.compose.paper import NO_ENDPOINT, NOT_STATED

Found = Mapping[str, Any]
MAIN_MEASURES = {
    "da": "DA",
    "da±1": "DA±1",
    "catr@1": "CatR@1",
    "catr@10": "CatR@10",
    "chain_cat": "Chain_cat",
}


def own(rows: Mapping[str, Found], method: str, measure: str) -> str:
    """Return our figure; of a method that was not measured, why."""
    if method in rows:
        return share(rows[method].get(measure))
    return "not measured" if method in METHODS else NO_ENDPOINT


def stated(figures: Mapping[str, float], measure: str) -> str:
    """Return a figure of the paper, or that it states none."""
    return share(figures[measure]) if measure in figures else NOT_STATED


def share(value: float | None) -> str:
    """Return a share with three digits; nothing of None."""
    return "" if value is None else f"{value:.3f}"


def with_interval(row: Found, measure: str) -> str:
    """Return a measure of a row with its 95 % interval; nothing if it was not measured."""
    return f"{row[measure]:.3f} {interval(*row['ci95'][measure])}" if measure in row else ""


def interval(low: float, high: float) -> str:
    """Return an interval."""
    return f"[{low:.3f}, {high:.3f}]"


def spread(values: Sequence[float] | None) -> str:
    """Return a mean with its interval; nothing of None."""
    return "" if values is None else f"{values[0]:.3f} {interval(values[1], values[2])}"


def p_value(value: float) -> str:
    """Return a p-value with four digits, or a smaller one with its power of ten."""
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"
