"""Markdown as plain text: fences, headings, links and marks of lists, and a paragraph without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

# The beginning of a heading `# Title`; group 1 are its marks.
HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
FENCE = re.compile(r"[ \t>]{0,100}(?:`{3,}|~{3,})")
LIST_MARK = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
# A link or a picture on one line; group 1 is its text.
LINK = re.compile(r"!?\[([^\]]{0,300})\]\([^)]{0,600}\)")
# The same in prose that becomes a description: nested brackets and asides that look like targets stay.
_PROSE_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:[ \t]+\"[^\"]*\")?\)")
_PROSE_MARK = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(?:\[[ xX]\][ \t]+)?")
_EMPHASIS = re.compile(r"(\*{1,3}|__)(?=\S)(.{1,600}?)(?<=\S)\1")
# A fence may open inside quotes and list items at any depth; its info string holds no backtick.
_OPENER = re.compile(r"\A[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
_CLOSER = re.compile(r"\A[ \t>]*+(?P<fence>`{3,}|~{3,})[ \t]*$")


_TICKS = re.compile("`+|\n")
_BRACKETED = re.compile(r"\[([^\]\n]*+)(?:\]\([^)\n]*+(\))?)?")


def unlinked(text: str) -> str:
    """Return a text in which the links of each line are their texts alone."""
    return _BRACKETED.sub(lambda link: link[1] if link[2] else link[0], text)


def code_spans(text: str) -> list[tuple[int, int]]:
    """Return where code between backticks stands: on one line, the same number on both sides.

    Of more backticks than are found again, the last so many are taken that are.
    """
    spans: list[tuple[int, int]] = []
    line: list[tuple[int, int]] = []
    for run in (*_TICKS.finditer(text), None):
        if run is not None and run[0] != "\n":
            line.append(run.span())
            continue
        spans += _pairs(line)
        line = []
    return spans


def without_code(line: str) -> str:
    """Return a text without its code between backticks."""
    kept, at = [], 0
    for start, end in code_spans(line):
        kept.append(line[at:start])
        at = end
    return "".join(kept) + line[at:]


def _pairs(runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    alike: dict[int, list[int]] = {}
    for place in range(len(runs) - 1, -1, -1):
        alike.setdefault(runs[place][1] - runs[place][0], []).append(place)
    place = 0
    while place < len(runs):
        begin, end = runs[place]
        for size in range(end - begin, 0, -1):
            later = alike.get(size, [])
            while later and later[-1] <= place:
                later.pop()
            if later:
                yield end - size, runs[later[-1]][1]
                place = later[-1]
                break
        place += 1


def fenced(lines: Sequence[str]) -> tuple[list[bool], bool]:
    """Tell which lines are between a fence's marks (not the marks), and whether the last fence stays open."""
    inside, opener, first = [False] * len(lines), "", 0
    for at in [at for at, line in enumerate(lines) if "```" in line or "~~~" in line]:
        match = (_CLOSER if opener else _OPENER).match(lines[at])
        if match and not opener:
            opener, first = match["fence"], at + 1
        elif match and match["fence"].startswith(opener):
            inside[first:at] = [True] * (at - first)
            opener = ""
    if opener:
        inside[first:] = [True] * (len(lines) - first)
    return inside, bool(opener)


def outside_fences(text: str) -> list[str]:
    """Return the lines of a text outside code fences, the fences' marks included."""
    lines = text.split("\n")
    return [line for line, in_code in zip(lines, fenced(lines)[0], strict=True) if not in_code]


def has_open_fence(text: str) -> bool:
    """Tell whether a text's last code fence is never closed."""
    return fenced([line for line in text.split("\n") if "```" in line or "~~~" in line])[1]


def plain_line(lines: Iterable[str], most: int) -> str:
    """Return a paragraph's first `most` characters on one line, without list marks, links and emphasis."""
    text = " ".join(_PROSE_MARK.sub("", line, count=1).strip() for line in lines)[:most]
    return " ".join(_EMPHASIS.sub(r"\2", _PROSE_LINK.sub(r"\1", text)).replace("`", "").split())
