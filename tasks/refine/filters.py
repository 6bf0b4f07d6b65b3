"""Filters: each returns None to keep, or a reason and what it saw."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from tasks.refine.canonical import control_share

Verdict: TypeAlias = tuple[str, str] | None

MAX_CONTROL_SHARE = 0.1

_ATX = re.compile(r" {0,3}#{1,6}(?:[ \t].*)?$")
# One line of text and its underline; a list item, quote, table or fence above dashes is no heading.
_TEXT = re.compile(r" {0,3}(?![-*+>|`~ \t]|\d+[.)])")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})[ \t]*$")


@dataclass(frozen=True, slots=True)
class Limits:
    """The filters' thresholds; `max_control_share` is a share of characters, 0 to 1."""

    max_control_share: float = MAX_CONTROL_SHARE


def too_large(content: bytes | None, size: int) -> Verdict:
    """Drop a file that the crawler left unread because it was over its limit; `size` is in bytes."""
    if content is not None:
        return None
    return "too_large", f"{size:,} bytes: over the size limit, its content was not read"


def empty(content: bytes) -> Verdict:
    """Drop a file of zero bytes."""
    return None if content else ("empty", "the file has zero bytes")


def not_text(text: str, *, max_control_share: float = MAX_CONTROL_SHARE) -> Verdict:
    """Drop what is binary: compressed bytes are about a quarter control characters, text has hardly any."""
    share = control_share(text)
    if share <= max_control_share:
        return None
    return "not_text", f"{share:.0%} control characters, at most {max_control_share:.0%} allowed"


def _only_headings(lines: list[str]) -> bool:
    """Tell whether a document has headings, marked or underlined, and nothing else."""
    at = 0
    while at < len(lines):
        if not lines[at].strip() or _ATX.match(lines[at]):
            at += 1
        elif _TEXT.match(lines[at]) and at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]):
            at += 2
        else:
            return False
    return True


def no_body(body: str) -> Verdict:
    """Drop a document that says nothing: a blank body, or headings with nothing below them."""
    if not body.strip():
        return "no_body", "nothing below the front matter"
    # Headings are no nodes, so a document of headings alone has nothing to page.
    if _only_headings(body.split("\n")):
        return "no_body", "only headings below the front matter"
    return None
