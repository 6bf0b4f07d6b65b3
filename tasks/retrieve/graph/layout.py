"""The layout of a skill's picture: nodes and headings in document order, column by column."""

from __future__ import annotations

import bisect
import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from storage.schemas import Node
from tasks.models.visible import visible

# All lengths are inches: the height of a row, the margin, from a node to its label, a character's width, and
# the room for arcs to the left of a column.
ROW, MARGIN, LABEL_GAP = 0.2, 0.35, 0.12
_CHARACTER, _ARCS = 0.062, 0.75
# A column has at least 24 rows, and 2.6 times the square root of all rows: a long skill is about square.
_FEWEST_ROWS, _ROWS_PER_ROOT = 24, 2.6
# Characters of a label, by the number of columns; with more columns than three, the last number.
_MOST_CHARACTERS = {1: 96, 2: 56, 3: 48}
_FEWEST_CHARACTERS = 38


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the picture, at `x`, `y` inches: a node, or a heading if `node` is None."""

    label: str
    x: float
    y: float
    node: Node | None


@dataclass(frozen=True, slots=True)
class Layout:
    """All lines of a picture, and its width and height in inches; `y` grows upwards."""

    rows: tuple[Row, ...]
    width: float
    height: float


def lay_out(nodes: Sequence[Node]) -> Layout:
    """Return the places of nodes and headings in columns of equal height, with labels cut to the width."""
    lines = _lines(nodes)
    per_column = max(_FEWEST_ROWS, math.ceil(_ROWS_PER_ROOT * math.sqrt(len(lines))))
    columns = max(1, math.ceil(len(lines) / per_column))
    per_column = max(1, math.ceil(len(lines) / columns))
    characters = _MOST_CHARACTERS.get(columns, _FEWEST_CHARACTERS)
    width = _ARCS + LABEL_GAP + characters * _CHARACTER
    height = per_column * ROW
    rows = []
    for position, (text, node) in enumerate(lines):
        column, line = divmod(position, per_column)
        x, y = MARGIN + _ARCS + column * width, height - line * ROW
        rows.append(Row(one_line(text, characters), x, y, node))
    return Layout(tuple(rows), 2 * MARGIN + columns * width, height)


def _lines(nodes: Sequence[Node]) -> list[tuple[str, Node | None]]:
    """Return the text of each node, and before the first of a section the headings that are new there."""
    lines: list[tuple[str, Node | None]] = []
    before: tuple[str, ...] = ()
    for node in nodes:
        path = node.heading_path
        if path and path != before:
            new = [h for i, h in enumerate(path) if path[: i + 1] != before[: i + 1]]
            lines.append((" › ".join(new or path[-1:]), None))
        before = path
        lines.append((node.text, node))
    return lines


def one_line(text: str, characters: int) -> str:
    """Return a text on one visible line, cut to the width of so many Latin characters."""
    words = visible(" ".join(text[:1000].split()))
    ends = list(itertools.accumulate(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in words))
    if not ends or ends[-1] <= characters:
        return words
    return words[: bisect.bisect_left(ends, characters)].rstrip() + "…"
