"""Markdown as plain text: fences, headings, links and marks of lists, and a paragraph without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# The beginning of a heading `# Title`; group 1 are its marks.
HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
FENCE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})")
LIST_MARK = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
# A link or a picture on one line; group 1 is its text.
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
# The same in prose that becomes a description: nested brackets and asides that look like targets stay.
_PROSE_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:[ \t]+\"[^\"]*\")?\)")
_PROSE_MARK = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(?:\[[ xX]\][ \t]+)?")
_EMPHASIS = re.compile(r"(\*{1,3}|__)(?=\S)(.+?)(?<=\S)\1")
# A fence may open inside quotes and list items at any depth; its info string holds no backtick.
_OPENER = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
_CLOSER = re.compile(r"[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*$")


def fenced(lines: Sequence[str]) -> tuple[list[bool], bool]:
    """Tell which lines are between a fence's marks (not the marks), and whether the last fence stays open."""
    inside: list[bool] = []
    opener = ""
    for line in lines:
        within = bool(opener)
        if "```" in line or "~~~" in line:
            match = (_CLOSER if opener else _OPENER).match(line)
            if not opener:
                opener = match["fence"] if match else ""
            elif match and match["fence"].startswith(opener):
                opener, within = "", False
        inside.append(within)
    return inside, bool(opener)


def outside_fences(text: str) -> list[str]:
    """Return the lines of a text outside code fences, the fences' marks included."""
    lines = text.split("\n")
    return [line for line, in_code in zip(lines, fenced(lines)[0], strict=True) if not in_code]


def has_open_fence(text: str) -> bool:
    """Tell whether a text's last code fence is never closed."""
    return fenced([line for line in text.split("\n") if "```" in line or "~~~" in line])[1]


def plain_line(lines: Iterable[str], most: int) -> str:
    """Return a paragraph on one line, without its list marks, link targets, emphasis and code marks.

    Args:
        lines: The lines of the paragraph.
        most: Characters of them that are read.
    """
    text = " ".join(_PROSE_MARK.sub("", line, count=1).strip() for line in lines)[:most]
    return " ".join(_EMPHASIS.sub(r"\2", _PROSE_LINK.sub(r"\1", text)).replace("`", "").split())
