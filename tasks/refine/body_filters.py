"""Filters on what a body is made of: words, headings, links."""

from __future__ import annotations

import re

from tasks.refine.filters import Verdict

_ATX = re.compile(r" {0,3}#{1,6}(?:[ \t].*)?$")
# One line of text and its underline; a list item, quote, table or fence above dashes is no heading.
_TEXT = re.compile(r" {0,3}(?![-*+>|`~ \t]|\d+[.)])")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})[ \t]*$")
_LIST_MARK = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
# A link, a reference's target, an address, a file to include; taken out one by one: a pattern of a line of
# them takes time exponential in their number.
_LINK = re.compile(
    r"!?\[[^\[\]]*\]\([^()]*\)|\[[^\[\]]+\]:[ \t]*\S+|<?https?://[^\s,;|]+|(?<![\w.])@[\w./-]+"
)
_HEAD_CHARS = 500
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces: two of their characters pass for a word.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff]")


def _only_headings(lines: list[str], *, or_links: bool = False) -> bool:
    """Tell whether a document has headings, marked or underlined, links if they count, and nothing else."""
    at = 0
    while at < len(lines):
        if not lines[at].strip() or _ATX.match(lines[at]) or (or_links and _only_links(lines[at])):
            at += 1
        elif _TEXT.match(lines[at]) and at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]):
            at += 2
        else:
            return False
    return True


def _only_links(line: str) -> bool:
    """Tell whether a line is a link or several, as a list item or not, and nothing else."""
    mark = _LIST_MARK.match(line)
    rest, links = _LINK.subn(" ", line[mark.end() if mark else 0 :])
    return links > 0 and not rest.strip(" \t,;|.")


def no_body(body: str) -> Verdict:
    """Drop a document that says nothing: a blank body, or headings with nothing below them."""
    if not body.strip():
        return "no_body", "nothing below the front matter"
    # Headings are no nodes, so a document of headings alone has nothing to page.
    if _only_headings(body.split("\n")):
        return "no_body", "only headings below the front matter"
    return None


def no_instructions(body: str) -> Verdict:
    """Drop a document of nothing but links, and headings above them: an index tells nobody what to do."""
    if not _only_headings(body.split("\n"), or_links=True):
        return None
    return "no_instructions", "only links and headings below the front matter"


def count_words(text: str) -> int:
    """Return a text's words; in scripts written without spaces two characters pass for one."""
    unspaced = len(_UNSPACED.findall(text))
    return len(_WORD.findall(_UNSPACED.sub(" ", text) if unspaced else text)) + (unspaced + 1) // 2


def too_short(body: str, *, min_words: int) -> Verdict:
    """Drop a body of fewer words than `min_words`; headings, code and links count."""
    # A body's start is enough to tell that it is long enough.
    words = count_words(body[:_HEAD_CHARS]) if len(body) > _HEAD_CHARS else 0
    words = words if words >= min_words else count_words(body)
    return ("too_short", f"{words} words, at least {min_words} wanted") if words < min_words else None
