"""Code fences, as far as canonical text needs them: which lines lie inside one, and is one left open."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Openers may stand in quotes and list items, at any depth; an info string holds no backtick.
_OPENER = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
_CLOSER = re.compile(r"[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*$")


def _closes(line: str, opener: str) -> bool:
    match = _CLOSER.match(line)
    return match is not None and match["fence"].startswith(opener)


def fenced(lines: Sequence[str]) -> tuple[list[bool], bool]:
    """Tell which lines lie between a fence's marks, and whether the last fence is never closed.

    Returns:
        One bool a line (the marks themselves are False), and True where a fence runs to the end unclosed.
    """
    inside: list[bool] = []
    opener = ""
    for line in lines:
        if "```" not in line and "~~~" not in line:
            inside.append(bool(opener))
            continue
        if opener:
            closing = _closes(line, opener)
            inside.append(not closing)
            opener = "" if closing else opener
            continue
        match = _OPENER.match(line)
        opener = match["fence"] if match else ""
        inside.append(False)
    return inside, bool(opener)


def has_open_fence(text: str) -> bool:
    """Tell whether a code fence of `text` is never closed."""
    return fenced([line for line in text.split("\n") if "```" in line or "~~~" in line])[1]
