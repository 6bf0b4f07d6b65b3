"""Renders selected units as text: document order, headings above them, omissions marked."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from storage.schemas import Node
from tasks.refine.text.markdown import code_spans
from tasks.retrieve.paging.context import GAP_MARK
from tasks.retrieve.paging.prepared import Prepared, frame_of

_BOLD = re.compile(r"(?<![\w*\\/])\*\*(?=[^\s*])([^*\n`]*+(?:`[^`\n]*`[^*\n`]*+)*+)(?<=[^\s*])\*\*(?![\w*/])")
_BREAK = re.compile(r"(?:^|\n)[ \t>]*(?:-[ \t]*){3,}(?=\n|$)|(?:^|\n)[ \t>]*(?:[*_][ \t]*){3,}(?=\n|$)")
_RULE = re.compile(r"\A[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*$")
_OPEN_EDGE = re.compile(r"\A[|\s]|[|\s\\]\Z")
_DASHES = re.compile(r":?-+:?")
_COMMENT = re.compile(r"^[ \t]*(?:#|//|--(?=\s|-*$)|;|/?\*)[^\n]*", re.MULTILINE)
_RULER = re.compile(r"([-=─━~*])\1{4,}|(#)\2{7,}")


def compact(text: str, block: str) -> str:
    """Return a text without bold marks, thematic breaks and marks at the edges of a table's rows.

    A table's rule gets its shortest form, and so do rulers in comments of code. Other code, HTML and text
    between backticks stay as they are. `block` is the block of the node, or `row` for rows of a table without
    its header.
    """
    if block == "html":
        return text
    if block == "code":
        return _COMMENT.sub(lambda line: _RULER.sub(lambda m: 3 * (m[1] or m[2]), line[0]), text)
    if block == "row":
        return _unbolded("\n".join(map(_without_edges, text.split("\n"))))
    if block == "table":
        head, *rows = text.split("\n")
        rows[:1] = [_DASHES.sub("-", row).replace(" ", "") if _RULE.match(row) else row for row in rows[:1]]
        return _unbolded("\n".join(map(_without_edges, [head, *rows])))
    return _BREAK.sub("", _unbolded(text)).strip("\n")


def _without_edges(row: str) -> str:
    """Return a row without the marks at its edges; an empty cell needs its mark, and so does one column."""
    bare = row.strip(" \t")
    inner = bare[1:-1].strip(" \t")
    marked = bare[:1] == bare[-1:] == "|" and "|" in inner
    return inner if marked and not _OPEN_EDGE.search(inner[0] + "x" + inner[-1]) else row


def _unbolded(text: str) -> str:
    if "**" not in text:
        return text
    code, parts, at, begun = code_spans(text), list[str](), 0, 0
    while bold := _BOLD.search(text, begun):
        before = bisect_left(code, (bold.start(), 0)) - 1
        if before >= 0 and code[before][1] > bold.start():
            begun = code[before][1]  # between backticks a star is a star
            continue
        parts += [text[at : bold.start()], bold[1]]
        at = begun = bold.end()
    return "".join(parts) + text[at:]


_PARAGRAPH = "\n\n"
# What else Python calls white space does not part words for every tokenizer.
_PLAIN_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a document that may be printed, shortened by `compact`: units, headings, and so on.

    Args:
        frames: The text before and after the units of each node, mostly empty.
        glue: The white space between each unit and the one before it if no heading is printed between.
        indents: The white space before each node on its first line, which carries the nesting of lists.
        joints: The text around a gap mark inside each node.
    """

    texts: Sequence[str]
    titles: Sequence[str]
    frames: Sequence[tuple[str, str]]
    glue: Sequence[str]
    indents: Sequence[str]
    joints: Sequence[str]


@dataclass(frozen=True, slots=True)
class Printed:
    """A page as text; the printed text of each node by ordinal, without a gap in `whole`; its gap marks."""

    context: str
    texts: Mapping[int, str]
    whole: frozenset[int]
    marks: int


def pieces_of(body: str, nodes: Sequence[Node], document: Prepared) -> Pieces:
    """Return the printable pieces of a document with at least one node."""
    units = document.units
    split = (np.diff(units.first) > 1).tolist()
    # A table's parts have no header of their own, and none of its marks.
    forms = ["row" if node.block == "table" and split[n] else node.block for n, node in enumerate(nodes)]
    spans = list(zip(units.start.tolist(), units.end.tolist(), units.owner.tolist(), strict=True))
    return Pieces(
        [compact(body[start:end], forms[owner]) for start, end, owner in spans],
        [body[h.start : h.end].strip() for h in document.headings],
        [_frame(body, node) if split[n] else ("", "") for n, node in enumerate(nodes)],
        ["", *(_glue(body, nodes, *two) for two in pairwise(spans))],
        [_indent(body, node) for node in nodes],
        ["\n" if node.block in ("code", "table") else " " for node in nodes],
    )


def _frame(body: str, node: Node) -> tuple[str, str]:
    before, after = frame_of(body, node)
    return compact(before, node.block), after


def _glue(body: str, nodes: Sequence[Node], before: tuple[int, int, int], unit: tuple[int, int, int]) -> str:
    """Return the white space between two units, each given as start, end and owner."""
    owner = unit[2]
    inside = before[2] == owner
    between = body[before[1] : unit[0]] if inside else body[nodes[owner - 1].end : nodes[owner].start]
    if not between.strip(_PLAIN_SPACE):
        return between
    return _PARAGRAPH if between.strip() or "\n" in between else " "


def _indent(body: str, node: Node) -> str:
    line = body.rfind("\n", 0, node.start) + 1
    before = body[line : node.start]
    return before if before.isspace() else ""


def print_units(document: Prepared, pieces: Pieces, chosen: Sequence[int]) -> Printed:
    """Print the `chosen` units (ascending, each once) in document order, each under its headings.

    Each heading is printed once. One line holds the gap mark where something between two pieces is omitted,
    and where the first or last node is not printed from its beginning or to its end. A block of code or a
    table that is printed in parts keeps its fences or its header.
    """
    printer = _Printer(document, pieces)
    first = printer.first
    groups = _by_node(document, chosen)
    cuts = [units[0] > first[node] for node, units in groups]
    for (node, units), cut_next in zip(groups, [*cuts[1:], False], strict=False):
        printer.add(node, units, cut_next=cut_next)
    return Printed("".join(printer.parts), printer.texts, frozenset(printer.whole), printer.marks)


def _by_node(document: Prepared, chosen: Sequence[int]) -> list[tuple[int, list[int]]]:
    owners = document.units.owner[np.array(chosen, dtype=np.int64)].tolist()
    groups: dict[int, list[int]] = {}
    for unit, node in zip(chosen, owners, strict=True):
        groups.setdefault(node, []).append(unit)
    return list(groups.items())


class _Printer:
    """The text printed so far, node after node; `marks` counts the gap marks."""

    def __init__(self, document: Prepared, pieces: Pieces) -> None:
        self._pieces, self._above = pieces, document.where.above
        self.first: list[int] = document.units.first.tolist()
        self._titled: set[int] = set()
        self._end, self._marked = -1, False
        self.parts: list[str] = []
        self.texts: dict[int, str] = {}
        self.whole: list[int] = []
        self.marks = 0

    def add(self, node: int, units: list[int], *, cut_next: bool) -> None:
        """Print units of a node; `cut_next` says that the next node will have a mark at its beginning."""
        first, last = self.first[node], self.first[node + 1]
        cut, whole = units[0] > first, len(units) == last - first
        self._separate(node, units[0], cut=cut)
        self._end = units[-1] + 1
        # One mark is enough between two nodes: the next node's own mark says that something is left out.
        self._marked = self._end < last and not cut_next
        text = self._pieces.texts[first] if whole and last - first == 1 else self._text(node, units, cut=cut)
        self.parts.append(text)
        self.texts[node] = text
        if whole:
            self.whole.append(node)

    def _separate(self, node: int, unit: int, *, cut: bool) -> None:
        """Print what comes between the text before and a node's first unit: gap mark, headings, indent."""
        pieces, begun = self._pieces, self._end >= 0
        gap = unit > self._end >= 0
        missing = [h for h in self._above[node] if h not in self._titled]
        apart = gap or bool(missing)
        if gap and not cut and not self._marked:
            self.parts.append(f"{_PARAGRAPH}{GAP_MARK}{_PARAGRAPH}")
            self.marks += 1
        elif begun:
            self.parts.append(_PARAGRAPH if apart else pieces.glue[unit])
        self._titled.update(missing)
        self.parts += [f"{pieces.titles[h]}{_PARAGRAPH}" for h in missing]
        if apart or not begun:
            self.parts.append(pieces.indents[node])

    def _text(self, node: int, units: list[int], *, cut: bool) -> str:
        pieces = self._pieces
        joint, (before, after) = pieces.joints[node], pieces.frames[node]
        mark = f"{joint}{GAP_MARK}{joint}"
        found = [f"{before}\n" if before else "", f"{GAP_MARK}{joint}" if cut else "", pieces.texts[units[0]]]
        self.marks += cut + self._marked
        for unit, last in zip(units[1:], units, strict=False):
            self.marks += unit > last + 1
            found += [mark if unit > last + 1 else pieces.glue[unit], pieces.texts[unit]]
        found += [f"{joint}{GAP_MARK}" if self._marked else "", f"\n{after}" if after else ""]
        return "".join(found)
