"""The arcs of edges in a picture of a skill's graph, in the layout's inches; `y` grows upwards."""

from __future__ import annotations

import math

from tasks.retrieve.graph.layout import Row

# Inches: the largest distance of an arc from its chord, a dot's radius, and where a sequence that goes on in
# the next column runs: so high above the bottom, and so far to the left of the column.
_BULGE, _RADIUS, _BELOW, _BESIDE = 0.55, 0.045, 0.06, 0.3
Point = tuple[float, float]


def way_around(source: Row, target: Row) -> list[Point]:
    """Return the way from the end of a column to the next one: below all labels, then between the columns."""
    below, beside = _BELOW, target.x - _BESIDE
    corners = [(source.x, below), (beside, below), (beside, target.y)]
    return [(source.x, source.y - _RADIUS), *corners, (target.x - _RADIUS, target.y)]


def bend_of(source: Row, target: Row, *, middle: float) -> float:
    """Return an arc's curvature: in its column to the left, away from labels, else towards the middle.

    An arc is quadratic: its control point lies beside the middle of its chord, at the curvature times the
    chord. An arc between columns that bulged outwards would run through the legend, or out of the picture.
    """
    length = math.dist((source.x, source.y), (target.x, target.y))
    # The distance of an arc from its chord is half its curvature times the chord.
    bend = min(0.6, 2 * _BULGE / max(length, 1e-6))
    if source.x == target.x:
        return -bend if source.y < target.y else bend
    downwards = (source.y + target.y) / 2 > middle
    return bend if downwards == (source.x < target.x) else -bend


def control_of(source: Row, target: Row, bend: float) -> Point:
    """Return the control point of an arc of some curvature."""
    dx, dy = target.x - source.x, target.y - source.y
    return (source.x + target.x) / 2 + bend * dy, (source.y + target.y) / 2 - bend * dx
