"""The layout of a picture: lines in order, column by column; of a skill its nodes and headings."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.schemas import Node
from tasks.models.visible import visible
from tasks.refine.text.markdown import FENCE

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# All lengths are inches: the height of a row, the margin, from a node to its label, a character's width, and
# the room for arcs to the left of a column.
ROW, MARGIN, LABEL_GAP = 0.2, 0.35, 0.12
CHARACTER, _ARCS = 0.062, 0.75
# A column has at least 24 rows, and 2.6 times the square root of all rows: a long skill is about square.
_FEWEST_ROWS, _ROWS_PER_ROOT = 24, 2.6
# Characters of a label, by the number of columns; with more columns than three, the last number.
MOST_CHARACTERS = {1: 96, 2: 56, 3: 48}
_FEWEST_CHARACTERS = 38
_READ = 1000  # characters of a node that its label is made of
_RULE = re.compile(r"\A(?=[^-]*-)[\s|:>-]+")
_HALF_BOLD = re.compile(r"(?<![\w/*])\*\*(?=[^\s/*])|(?<=[^\s/*])\*\*(?![\w/*])")


@dataclass(frozen=True, slots=True)
class Line:
    """A line to be placed: its text, and the id of what it stands for; None for one without a dot."""

    text: str
    key: str | None = None
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the picture, its text cut to the width, at `x`, `y` inches."""

    label: str
    x: float
    y: float
    key: str | None
    heading: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """All lines of a picture, and its width and height in inches; `y` grows upwards."""

    rows: tuple[Row, ...]
    width: float
    height: float


def lay_out(lines: Sequence[Line], *, one_column: bool = False) -> Layout:
    """Return the places of lines in columns of equal height, with labels cut to the width.

    A heading stands in the column of the line below it.
    """
    per_column = max(_FEWEST_ROWS, math.ceil(_ROWS_PER_ROOT * math.sqrt(len(lines))))
    columns = _columns(lines, 1 if one_column else max(1, math.ceil(len(lines) / per_column)))
    characters = MOST_CHARACTERS.get(len(columns), _FEWEST_CHARACTERS)
    width = _ARCS + LABEL_GAP + characters * CHARACTER
    height = max(map(len, columns)) * ROW
    rows = [
        Row(
            one_line(line.text, characters), MARGIN + _ARCS + column * width, height - place * ROW,
            line.key, line.heading,
        )
        for column, held in enumerate(columns)
        for place, line in enumerate(held)
    ]  # fmt: skip
    return Layout(tuple(rows), 2 * MARGIN + len(columns) * width, max(height, ROW))


def _columns(lines: Sequence[Line], most: int) -> list[list[Line]]:
    """Return lines in at most so many columns, short ones, none of which ends in a heading."""
    for per_column in itertools.count(max(1, math.ceil(len(lines) / most))):
        columns: list[list[Line]] = [[]]
        for line, following in itertools.zip_longest(lines, lines[1:]):
            opens = line.heading and following is not None
            if len(columns[-1]) + opens >= per_column and columns[-1]:
                columns.append([])
            columns[-1].append(line)
        if len(columns) <= most:
            return columns
    raise AssertionError


def node_lines(nodes: Sequence[Node]) -> list[Line]:
    """Return the text of each node, and before the first of a section the headings that are new there."""
    lines: list[Line] = []
    before: tuple[str, ...] = ()
    for node in nodes:
        path = node.heading_path
        if path and path != before:
            new = [h for i, h in enumerate(path) if path[: i + 1] != before[: i + 1]]
            lines.append(Line(" › ".join(map(_unmarked, new or path[-1:])), heading=True))
        before = path
        lines.append(Line(_words(node), node.node_id))
    return lines


def _words(node: Node) -> str:
    """Return the words of a node without the marks of Markdown: fences, rules of tables, emphasis, links."""
    lines = node.text[:_READ].split("\n")
    if node.block == "code":
        return "\n".join(line for line in lines if not FENCE.match(line)) or node.text
    if node.block == "table":
        rows = [_unmarked(line.strip(" |")) for line in lines if not _RULE.fullmatch(line)]
        return "; ".join(rows)
    return _unmarked("\n".join(lines))


def _unmarked(text: str) -> str:
    """Return a text as CommonMark shows it, without emphasis, code marks and targets of links."""
    (inline,) = _inline().parseInline(text[:_READ])
    return "".join(_shown(token) for token in inline.children or [])


def _shown(token: Token) -> str:
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    # A sentence may hold one end of an emphasis, and the next one the other.
    return _HALF_BOLD.sub("", token.content) if token.type == "text" else token.content


@functools.cache
def _inline() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 (a picture alone needs it)

    return MarkdownIt("commonmark").disable("entity")


def one_line(text: str, characters: int) -> str:
    """Return a text on one visible line, cut to the width of so many Latin characters."""
    words = visible(" ".join(text[:_READ].split()))
    ends = list(itertools.accumulate(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in words))
    if not ends or ends[-1] <= characters:
        return words
    return words[: bisect.bisect_left(ends, characters)].rstrip() + "…"
