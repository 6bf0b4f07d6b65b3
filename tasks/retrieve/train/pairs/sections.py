"""Sections of bodies with requests: lists of occasions, examples, users' turns, questions as headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tasks.retrieve.train.pairs.pieces import NEGATIVE, READ, Origin, Piece, quotes

_FENCE = re.compile(r"\s*(?:```|~~~)")
_HEADING = re.compile(r"#{1,6}\s+(?P<title>.+?)\s*#*$")
_LEAD_IN = re.compile(r"(?P<title>[^|`]{3,120}):[*_]*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>.+)$")
_TURN = re.compile(
    r"""(?ix)^[\s>*_-]*(?:example\s*\d*\s*[:–—-]\s*)?(?:user|human)(?:\s+(?:says?|asks?|request|prompt|input))?
    \s*[*_]*\s*:\s*[*_]*\s*(?P<text>["“'‘]?[A-Za-z].+)$"""
)
_OCCASIONS = re.compile(
    r"(?i)\bwhen (?:to|should (?:i|you)) (?:use|apply|invoke|activate|trigger|load|call)\b"
    r"|\b(?:use|apply|invoke|activate|trigger|load|call)s? "
    r"(?:this|it|the)?\s*(?:skill |agent |command )?when\b"
    r"|\buse cases?\b|\btriggers?\b|\bactivat(?:ion|e|es)\b|\buse (?:this|it)(?: skill)? (?:for|to)\b"
)
_EXAMPLES = re.compile(
    r"(?i)\b(?:examples?|sample|suggested|common|typical)(?: of)? (?:user |usage |natural language )?"
    r"(?:prompts?|requests?|quer(?:y|ies)|questions?|phrases|asks?)\b"
    r"|\btrigger (?:phrases|prompts|examples)\b|\busers? (?:says?|asks?|might (?:say|ask)|may (?:say|ask))$"
    r"|\b(?:you can|try) (?:ask|say)(?:ing)?\b|\bprompt examples?\b"
)
_ASKED = re.compile(
    r"(?i)^(?:\d+[.):]\s*|q\d*\s*[:.]\s*)?(?P<text>(?:how (?:do|can|should|would|to|does one)|can i|may i|"
    r"should i|do i|what if (?:i|my)|why (?:is|does|do|are|can['’]t) (?:my|i)|where (?:do|can|is) (?:i|my)|"
    r"which \w+ should i|what \w+ should i|what should i)\b.+\?)$"
)


class _Line(NamedTuple):
    text: str
    start: int
    end: int
    code: bool


Kind = Literal["occasions", "examples"]


def section_pieces(body: str) -> Iterator[Piece]:
    """Yield the requests in the first 20,000 characters of a body; each cuts the line that it stands in."""
    kind: Kind | None = None
    for line in _lines(body[:READ]):
        opened = None if line.code else _opened(line.text)
        if opened is not None:
            title, heading = opened
            if heading or kind_of(title) or NEGATIVE.search(title):
                kind = kind_of(title)
        for origin, text in _of_line(line, kind):
            yield Piece(origin, text, "body", line.start, line.end)


def kind_of(title: str) -> Kind | None:
    """Return what a heading or lead-in announces: occasions, examples of requests, None for neither."""
    if NEGATIVE.search(title):
        return None
    if _EXAMPLES.search(title):
        return "examples"
    return "occasions" if _OCCASIONS.search(title) else None


def _lines(body: str) -> Iterator[_Line]:
    start, code = 0, False
    for text in body.splitlines(keepends=True):
        fence = bool(_FENCE.match(text))
        code ^= fence
        yield _Line(text.rstrip(), start, start + len(text), code or fence)
        start += len(text)


def _opened(text: str) -> tuple[str, bool] | None:
    """Return the title of a heading or of a lead-in, and whether it is a heading."""
    bare = text.strip()
    if found := _HEADING.match(bare):
        return found["title"], True
    found = None if _ITEM.match(text) else _LEAD_IN.match(bare)
    return (found["title"], False) if found else None


def _of_line(line: _Line, kind: Kind | None) -> Iterator[tuple[Origin, str]]:
    if turn := _TURN.match(line.text):
        text = turn["text"].strip(" *_")
        yield "user_turn", next(iter(quotes(text)), text) if text[0] in "\"“'‘" else text
        return
    if line.code:
        return
    heading = _HEADING.match(line.text)
    if heading and (asked := _ASKED.match(heading["title"].replace("*", ""))):
        yield "question_heading", asked["text"]
    elif kind and not heading and not NEGATIVE.search(line.text):
        yield from _listed(line.text, kind)


def _listed(text: str, kind: Kind) -> Iterator[tuple[Origin, str]]:
    item = _ITEM.match(text)
    bare = (item["text"] if item else text).strip().strip("*_")
    spoken = quotes(bare)
    if spoken and (item or "|" in text):
        for one in spoken:
            yield "body_quote", one
    elif item and kind == "occasions":
        yield "body_list", bare
