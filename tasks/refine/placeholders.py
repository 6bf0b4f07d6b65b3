"""Texts that stand where an author has not written yet, as patterns in data."""

from __future__ import annotations

import functools
import re

from tasks.refine.rules_data import rules_data

_RULE = frozenset("-=_*")
_WRAPPING = " \t\n>*_`\"'“”<>[](){}-+#:!."
_LIST_MARK = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")


@functools.cache
def _pattern() -> re.Pattern[str]:
    lines = rules_data("placeholders.yaml")["lines"]
    return re.compile("|".join(f"(?:{line})" for line in lines), re.IGNORECASE)


def is_placeholder(line: str) -> bool:
    """Tell whether a line stands for a text that is not there yet."""
    bare = _LIST_MARK.sub("", line.strip(), count=1)
    inner = bare.strip(_WRAPPING)
    return bool(inner) and bool(_pattern().fullmatch(inner) or _pattern().fullmatch(bare.strip()))


def only_placeholders(body: str) -> bool:
    """Tell whether a body is headings and placeholders alone, with at least one placeholder."""
    found = False
    for line in body.split("\n"):
        if not line.strip() or _HEADING.match(line) or set(line.strip()) <= _RULE:
            continue
        if not is_placeholder(line):
            return False
        found = True
    return found
