"""Reads headings, and finds them again between the nodes of a body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|$)")
_ATX = re.compile(r" {0,3}#{1,6}(?=[ \t\r\n]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t\r\n]*")
_TEXT = re.compile(r" {0,3}[^ \t\r\n]")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading outside of lists and quotes: level 1 to 6, title without marks, lines `body[start:end]`."""

    level: int
    title: str
    start: int
    end: int


def read_heading(body: str, start: int, end: int) -> Heading:
    """Return the ATX or setext heading whose lines are `body[start:end]`."""
    # Other white space, such as a form feed, is text to CommonMark.
    text = body[start:end].strip(" \t\r\n")
    start = body.index(text, start)
    end = start + len(text.rstrip())
    if _ATX.match(text):
        title = text.lstrip("#")
        level = len(text) - len(title)
        title = title.strip()
        bare = title.rstrip("#")
        # Closing marks count only after a blank: `# C#` is the title `C#`.
        return Heading(level, title if bare and not bare[-1].isspace() else bare.rstrip(), start, end)
    underline = text[-1]
    lines = text.rstrip(underline).splitlines()
    return Heading(1 if underline == "=" else 2, " ".join(line.strip() for line in lines).strip(), start, end)


def _lines(body: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the lines that lie wholly in `body[start:end]`."""
    inside_line = start > 0 and body[start - 1] not in "\r\n"
    for line in _LINE.finditer(body, start):
        if line.end() > end or line.start() == end:
            return
        if not (inside_line and line.start() == start):
            yield line.span()


def _between(body: str, start: int, end: int) -> Iterator[Heading]:
    first: int | None = None
    for at, after in _lines(body, start, end):
        if not body[at:after].strip(" \t\r\n"):
            first = None
        elif _ATX.match(body, at):
            yield read_heading(body, at, after)
            first = None
        elif first is not None and _UNDERLINE.fullmatch(body, at, after):
            yield read_heading(body, first, after)
            first = None
        elif first is None and _TEXT.match(body, at):
            first = at


def headings_between(body: str, spans: Sequence[tuple[int, int]]) -> tuple[Heading, ...]:
    """Return the headings of a body, given its nodes' spans in document order.

    The result equals `segment(body).headings` for the spans of that segmentation.
    """
    # Nodes and headings hold every non-blank character, so only headings stand between nodes.
    edges = [0, *(offset for span in spans for offset in span), len(body)]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return tuple(h for a, b in gaps if a < b and not body[a:b].isspace() for h in _between(body, a, b))
