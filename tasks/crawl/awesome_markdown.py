"""The entries of an awesome list: Markdown list items that begin with a link."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

_LINK = r"\[(?P<name>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<url>(?:[^()\s]|\([^()\s]*\))*)(?:\s+\"[^\"]*\")?\)"
_BULLET = r"^\s*(?:[-*+]|\d+[.)])\s"
_ITEM = re.compile(_BULLET)
_ENTRY = re.compile(
    rf"{_BULLET}\s*(?:<[^>]*>\s*)*(?P<mark>\*\*|__)?{_LINK}(?(mark)(?:\*\*|__)?)(?P<rest>.*)$"
)
_HEADING = re.compile(r"^(?P<level>#{1,6})\s+(?P<title>\S.*)$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_BADGE = re.compile(r"\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)|!\[[^\]]*\]\([^)]*\)")
_TAG = re.compile(r"<[^>]*>")
_LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BETWEEN = frozenset("/,|)-–—:")  # what people put between flags, and before a description
_SYMBOL = re.compile(r"[#*0-9]\uFE0F?\u20E3|\S\uFE0F?(?:\u200D\S\uFE0F?)*")  # keycaps, joined ones too
_VARIATION = "\ufe0f"


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a list.

    Args:
        line: Where it stands, from 1.
        name: The text of its link.
        url: The link.
        flags: The symbols before its description, without variation selectors.
        description: One line; may be empty.
        sections: The headings above it, outermost first.
    """

    line: int
    name: str
    url: str
    flags: tuple[str, ...]
    description: str
    sections: tuple[str, ...]


def entries(text: str) -> Iterator[Entry]:
    """Yield the items of a list that begin with a link, but for links into the page itself.

    Between the link and the description stand flags, a dash, both or nothing; the link may be bold, and a
    logo may stand before it. Indented lines that follow belong to the description.
    """
    headings: dict[int, str] = {}
    fenced = False
    last: Entry | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        fenced ^= _FENCE.match(line) is not None
        if last is not None and not fenced and _continues(line):
            last = replace(last, description=f"{last.description} {line.strip()}".strip())
            continue
        if last is not None:
            yield last
        last = None
        if fenced:
            continue
        if heading := _HEADING.match(line):
            level = len(heading["level"])
            headings = {k: v for k, v in headings.items() if k < level} | {
                level: _title(heading["title"].rstrip(" \t\r#"))
            }
        elif (item := _ENTRY.match(line)) and not item["url"].startswith("#"):
            sections = tuple(headings[level] for level in sorted(headings))
            last = _entry(number, item["name"], item["url"], item["rest"], sections)
    if last is not None:
        yield last


def _continues(line: str) -> bool:
    return line[:1] in {" ", "\t"} and bool(line.strip()) and not _ITEM.match(line)


def _entry(line: int, name: str, url: str, rest: str, sections: tuple[str, ...]) -> Entry:
    flags, description = _flags(_BADGE.sub("", rest))
    return Entry(line, " ".join(name.split()), url, flags, description, sections)


def _flags(text: str) -> tuple[tuple[str, ...], str]:
    """Split the symbols that a text begins with, and what stands between them, from the rest of it."""
    found: list[str] = []
    position = 0
    while match := _SYMBOL.match(text, position := _next(text, position)):
        symbol = match[0].replace(_VARIATION, "")
        if unicodedata.category(symbol[-1]) not in ("So", "Me"):
            break
        found.append(symbol)
        position = match.end()
    return tuple(found), text[position:].strip()


def _next(text: str, position: int) -> int:
    between = (c.isspace() or c == _VARIATION or c in _BETWEEN for c in text[position:])
    return position + sum(itertools.takewhile(bool, between))


def _title(heading: str) -> str:
    """Return a heading's words, without anchors, badges, links and the symbols it begins with."""
    return _flags(_LINKED.sub(r"\1", _TAG.sub("", _BADGE.sub("", heading))))[1]
