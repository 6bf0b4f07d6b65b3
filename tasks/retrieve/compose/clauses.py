"""The clauses of a request: the smallest parts that may be a step, each with what joins it on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.refine.text.words import CONTRACTION

_QUOTED = re.compile(
    r"(?<!\w)'[^'\n]{1,60}'(?!\w)|\"[^\"\n]{1,80}\"|“[^”\n]{1,80}”|`[^`\n]{1,80}`|‘[^’\n]{1,60}’(?!\w)"
)
_TITLE = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|No|vs|etc|approx|e\.g|i\.e|[A-Z])\.)$")
# What joins clauses, tried in this order at every place. Names are those of `Clause.join`.
_SUBORDINATE = (
    r"as\ssoon\sas|in\scase|so\sthat|provided|whenever|unless|until|till|because|since|although|though|while|"
    "whilst|once|after|before|when|where|whose|which|who|if|but|yet"
)
_SIGNS = re.compile(
    rf"""
    (?P<sentence>(?<=[.!?…。！？])["')\]”’]*\s+(?=\S) | [。！？] | (?<!\s)[^\S\n]*\n\s*)
  | (?P<semicolon>[;；]\s*)
  | (?P<colon>:\s+|：)
  | (?P<dash>(?<!\s)\s+(?:[-–—]+>?|=>)\s+|(?:(?<!\s)\s+)?[—→⇒]\s*)
  | (?P<bracket>(?:(?<!\s)\s+)?(?:\(|\)[,;]?)\s*)
  | (?P<comma>[,，、]\s+)
  | (?P<and>(?<!\s)\s+(?:and|&|plus|or|nor)\s+)
  | (?P<then>(?<!\s)\s+(?:then|afterwards)\s+)
  | (?P<sub>(?<!\s)\s+(?=(?:{_SUBORDINATE})\b))
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Words after a sign that say no more than how the clause follows; they belong to the join.
_LEAD = re.compile(
    r"(?:(?:and|or|but|plus|then|next|also|finally|lastly|afterwards|first|second|third|please|so)\b[,\s]*)+",
    re.IGNORECASE,
)
JOINS = ("start", "sentence", "semicolon", "colon", "dash", "bracket", "comma", "and", "then", "sub")


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a request, `query[start:end]`; `join` is what separates it from the one before."""

    start: int
    end: int
    join: str
    text: str


def clauses(query: str) -> list[Clause]:
    """Return the clauses of a request in order; together they hold all its words but leads."""
    found: list[Clause] = []
    before = JOINS[-1]
    for start, end, join in _pieces(query):
        head = _LEAD.match(query, start, end)
        begin = head.end() if head else start
        if not CONTRACTION.search(query, begin, end):
            # Nothing but a lead ("and", cut off by "then"): it leads what follows.
            before = stronger(before, join)
            continue
        found.append(Clause(begin, end, stronger(before, join), query[begin:end]))
        before = JOINS[-1]
    return found


def _pieces(query: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and join of what stands between signs, without blanks at either end."""
    held = [match.span() for match in _QUOTED.finditer(query)]
    start, join = 0, "start"
    for sign in _SIGNS.finditer(query):
        if any(a < sign.start() < b for a, b in held) or sign.end() <= start:
            continue
        kind = str(sign.lastgroup)
        if kind == "sentence" and _TITLE.search(query, max(0, start), sign.start()):
            continue
        yield from _stripped(query, start, sign.start(), join)
        # Of two signs that meet, as in ", and", the first says more.
        join = kind if CONTRACTION.search(query, start, sign.start()) else stronger(join, kind)
        start = sign.end()
    yield from _stripped(query, start, len(query), join)


def stronger(one: str, other: str) -> str:
    """Return the join that separates more."""
    return min(one, other, key=JOINS.index)


def _stripped(query: str, start: int, end: int, join: str) -> Iterator[tuple[int, int, str]]:
    while start < end and query[start].isspace():
        start += 1
    while end > start and (query[end - 1].isspace() or query[end - 1] in ",;:.!?"):
        end -= 1
    if start < end:
        yield start, end, join
