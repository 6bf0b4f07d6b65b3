"""Outlines: a page as its elements, read off the text of its accessibility tree."""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(
    r"\A\s*+(?:\[(?P<id>[^\]\s]+)\] )?(?P<role>[\w-]+)"
    r"""(?: (?P<name>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))?"""
)
_ESCAPED = re.compile(r"\\(.)")
_SIGNS = re.compile(r"[\W_]+")
_COUNT = re.compile(r"(?<=\S) \d+$")
_ID = re.compile(r"^([ \t]*)\[[^\]\s]+\] ", re.MULTILINE)
_KEPT = 64  # outlines of the last pages; a step's page is asked for many times


@dataclass(frozen=True, slots=True)
class Element:
    """An element that one can act on; `label` is its folded name, `ordinal` its place among those alike."""

    element_id: str
    role: str
    label: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class PageOutline:
    """The elements of a page by their ids, and how many there are of each role and label."""

    elements: Mapping[str, Element]
    counts: Mapping[tuple[str, str], int]

    def shows(self, role: str, label: str, ordinal: int = 0) -> bool:
        """Tell whether the page has an element of a role and label with that ordinal."""
        return self.counts.get((role, label), 0) > ordinal

    def holds(self, element: Element) -> bool:
        """Tell whether the page has an element of the role, label and ordinal of one."""
        return self.shows(element.role, element.label, element.ordinal)

    def find(self, role: str, label: str, ordinal: int) -> Element | None:
        """Return the element of a role and label with that ordinal; None if the page has none."""
        wanted = (role, label, ordinal)
        alike = (each for each in self.elements.values() if (each.role, each.label, each.ordinal) == wanted)
        return next(alike, None)


def folded(name: str) -> str:
    """Return a name in lower case, other than letters and digits as one blank, without a count at the end."""
    return _COUNT.sub("", _SIGNS.sub(" ", name.lower()).strip())


@functools.lru_cache(maxsize=_KEPT)
def outline_of(observation: str) -> PageOutline:
    """Return the outline of a page: a line an element, `[id] role "name"`; lines without an id hold text.

    A name may stand in single quotes, as WebArena prints it.
    """
    elements: dict[str, Element] = {}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for line in observation.split("\n"):  # a name may hold other separators of lines
        found = _LINE.match(line)
        if found is None or found["id"] is None or found["id"] in elements:
            continue
        role, label = found["role"], folded(_unquoted(found["name"]))
        elements[found["id"]] = Element(found["id"], role, label, counts[role, label])
        counts[role, label] += 1
    return PageOutline(elements, dict(counts))


def page_seen(observation: str) -> PageOutline | None:
    """Return the outline of what is seen; None if it is no page: what a tool gave, or what was said."""
    outline = outline_of(observation)
    return outline if outline.elements else None


def is_cut(observation: str) -> bool:
    """Tell whether a long page was cut: one of its lines is `...`."""
    return any(line.strip() == "..." for line in observation.split("\n"))


def without_ids(observation: str) -> str:
    """Return a page without the ids of its elements, which change whenever it is drawn anew."""
    return _ID.sub(r"\1", observation)


def _unquoted(quoted: str | None) -> str:
    if quoted and quoted.startswith("'"):
        return _ESCAPED.sub(r"\1", quoted[1:-1])
    try:
        return str(json.loads(quoted or '""'))
    except ValueError:  # cut in an escape
        return (quoted or "")[1:-1]
