"""The context of a risk's hit in a text, which may reduce its weight."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from itertools import accumulate

from tasks.refine.risks.rules import Context, RiskRules
from tasks.refine.risks.screen import Region
from tasks.refine.text.canonical import fenced

_FRONT_MATTER = re.compile(r"[\s\ufeff]*---[ \t]*\n")
_SENTENCE_CHARS = 160
_SENTENCE_END = re.compile(
    r"[.!?;]\s|, (?:but|just|then|instead|rather|please)\b|\n\s*\n|\n\s*(?:[-*+]|\d{1,3}[.)])\s"
)
_QUOTES = (('"', '"'), ("“", "”"), ("‘", "’"), ("«", "»"), ("„", "“"), ("「", "」"), ("'", "'"))
_LINE_CHARS = 400


def _lowered(text: str) -> str:
    """Return the text in lower case, every character where it was."""
    lowered = text.lower()
    # A few capitals become two characters.
    if len(lowered) != len(text):
        lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return lowered


class Surroundings:
    """One text, with newlines as LF, and the parts of it that rules ask for; each is found when first asked.

    Args:
        text: The whole file.
        rules: The rules it is scanned with.
    """

    def __init__(self, text: str, rules: RiskRules) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
        self.rules = rules
        self.lowered = _lowered(self.text)
        self._values: dict[str, list[Region]] = {}

    @functools.cached_property
    def lines(self) -> list[str]:
        """The text's lines, without their ends."""
        return self.lowered.split("\n")

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.lines)][:-1]

    @functools.cached_property
    def _fenced(self) -> list[bool]:
        return fenced(self.lines)[0]

    @functools.cached_property
    def education(self) -> bool:
        """Whether the text speaks about attacks: it uses enough of the terms that such texts use."""
        used = sum(term in self.lowered for term in self.rules.education)
        return used >= self.rules.education_terms

    def line(self, place: int) -> int:
        """Return the line of a place, counted from 1."""
        return bisect_right(self._starts, place)

    def regions(self, where: str) -> list[Region]:
        """Return a text's comments, or the value of a key of its front matter, as offsets."""
        if where not in self._values:
            self._values[where] = self._comments if where == "comment" else self._front_matter_value(where)
        return self._values[where]

    @functools.cached_property
    def _comments(self) -> list[Region]:
        """HTML comments without their marks; one never closed runs to the end, as in a page."""
        found: list[Region] = []
        start = self.text.find("<!--")
        while start >= 0:
            end = self.text.find("-->", start + 4)
            found.append((start + 4, end if end >= 0 else len(self.text)))
            start = self.text.find("<!--", end) if end >= 0 else -1
        return found

    @functools.cached_property
    def _front_matter(self) -> Region:
        opening = _FRONT_MATTER.match(self.text)
        if not opening:
            return (0, 0)
        closing = self.text.find("\n---", opening.end() - 1)
        return (opening.end(), closing if closing >= 0 else opening.end())

    def _front_matter_value(self, key: str) -> list[Region]:
        start, end = self._front_matter
        at = self.lowered.find(f"\n{key}:", start - 1, end) if end > start else -1
        if at < 0:
            return []
        begin = at + len(key) + 2
        following = self.lowered.find("\n", begin, end)
        # Items of a list may stand in the first column, the next key does, too.
        while following >= 0 and (self.lowered[following + 1 : following + 2] in {" ", "\t", "-", "\n"}):
            following = self.lowered.find("\n", following + 1, end)
        return [(begin, following if following >= 0 else end)]

    def applies(self, context: Context, start: int, end: int) -> bool:
        """Tell whether the hit at these offsets stands in a context."""
        match context:
            case "education":
                return self.education
            case "fence":
                return self._fenced[self.line(start) - 1]
            case "quote":
                return self._quoted(start, end)
            case "negation":
                return self._negated(start)

    def _around(self, start: int, end: int) -> tuple[str, str]:
        """Return what stands on the hit's lines before and after it, 400 characters each at most."""
        first = max(self.lowered.rfind("\n", 0, start) + 1, start - _LINE_CHARS)
        last = self.lowered.find("\n", end, end + _LINE_CHARS)
        return self.lowered[first:start], self.lowered[end : last if last >= 0 else end + _LINE_CHARS]

    def _quoted(self, start: int, end: int) -> bool:
        before, after = self._around(start, end)
        if before.lstrip().startswith(">") or before.count("`") % 2 == 1:
            return True
        for opening, closing in _QUOTES:
            opened = before.rfind(opening)
            # An apostrophe inside a word opens nothing.
            if opened > 0 and opening == "'" and before[opened - 1].isalnum():
                continue
            odd = opening != closing or before.count(opening) % 2 == 1
            if opened >= 0 and odd and closing not in before[opened + 1 :] and closing in after:
                return True
        return False

    def _negated(self, start: int) -> bool:
        """Tell whether the sentence forbids or detects what it names: the words before the hit decide."""
        before = self.lowered[max(0, start - _SENTENCE_CHARS) : start]
        return bool(self.rules.negation.search(_SENTENCE_END.split(before)[-1]))
