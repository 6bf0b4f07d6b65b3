"""Saying the same in fewer tokens: marks that carry nothing are left out of what is printed in parts."""

from __future__ import annotations

import re

_BOLD = re.compile(
    r"(`+)(?:(?!\1).)+\1|(?<![\w*\\/])\*\*(?=[^\s*])([^*\n`]*(?:`[^`\n]*`[^*\n`]*)*)(?<=[^\s*])\*\*(?![\w*/])"
)
_BREAK = re.compile(r"(?:^|\n)[ \t>]*(?:-[ \t]*){3,}(?=\n|$)|(?:^|\n)[ \t>]*(?:[*_][ \t]*){3,}(?=\n|$)")
_RULE = re.compile(r"^[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_DASHES = re.compile(r":?-+:?")


def compact(text: str, block: str) -> str:
    """Return a text without bold marks and thematic breaks, the rule of a table at its shortest.

    Code and HTML stay as they are, and so does what stands between backticks.
    """
    if block in ("code", "html"):
        return text
    if block == "table":
        head, *rows = text.split("\n")
        rows[:1] = [_DASHES.sub("-", row).replace(" ", "") if _RULE.match(row) else row for row in rows[:1]]
        return _unbolded("\n".join([head, *rows]))
    return _BREAK.sub("", _unbolded(text)).strip("\n")


def _unbolded(text: str) -> str:
    return _BOLD.sub(lambda m: m[0] if m[2] is None else m[2], text) if "**" in text else text
