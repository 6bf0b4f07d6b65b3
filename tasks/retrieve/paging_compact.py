"""Saying the same in fewer tokens: marks that carry nothing are left out of what is printed in parts."""

from __future__ import annotations

import re

_BOLD = re.compile(
    r"(`+)(?:(?!\1).)+\1|(?<![\w*\\/])\*\*(?=[^\s*])([^*\n`]*(?:`[^`\n]*`[^*\n`]*)*)(?<=[^\s*])\*\*(?![\w*/])"
)
_BREAK = re.compile(r"(?:^|\n)[ \t>]*(?:-[ \t]*){3,}(?=\n|$)|(?:^|\n)[ \t>]*(?:[*_][ \t]*){3,}(?=\n|$)")
_RULE = re.compile(r"^[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_DASHES = re.compile(r":?-+:?")
# An edge cell that is empty needs its mark, and so does a table of one column.
_EDGES = re.compile(r"^[ \t]*\|[ \t]*((?=[^|\s]).*\|.*[^|\s\\])[ \t]*\|[ \t]*$")
_COMMENT = re.compile(r"^[ \t]*(?:#|//|--(?=\s|-*$)|;|/?\*)[^\n]*", re.MULTILINE)
_RULER = re.compile(r"([-=─━~*])\1{4,}|(#)\2{7,}")


def compact(text: str, block: str) -> str:
    """Return a text without bold marks, thematic breaks and marks at the edges of a table's rows.

    A table's rule is at its shortest, and so are rulers in the comments of code; all else in code stays as it
    is, and so do HTML and what stands between backticks.

    Args:
        text: What is to be printed.
        block: The block of the node, or `row` for rows of a table without its header.
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
    found = _EDGES.match(row)
    return row if found is None else found[1]


def _unbolded(text: str) -> str:
    return _BOLD.sub(lambda m: m[0] if m[2] is None else m[2], text) if "**" in text else text
