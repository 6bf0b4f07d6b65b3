"""The context of a risk's hit in a text, which may lower its severity."""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_left

from tasks.refine.frontmatter.place import leading_run, place_of
from tasks.refine.risks.rules import Context, Region, RiskRules
from tasks.refine.risks.terms import patterns
from tasks.refine.text.markdown import fenced
from tasks.refine.text.words import NEGATION_BREAK

# A comment that is never closed runs to the end, as in a browser.
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
# A definition of a link to nowhere is another comment of Markdown's.
_LINK_COMMENT = re.compile(
    r"^[ ]{0,3}\[[^\]\n]{1,40}\]:[ ]{0,3}(?:#|<>|<#>)[ ]{0,3}[(\"']([^\n]*)", re.MULTILINE
)
_SENTENCE_CHARS = 160
_QUOTES = (('"', '"'), ("“", "”"), ("‘", "’"), ("«", "»"), ("„", "“"), ("「", "」"), ("'", "'"))
_LINE_CHARS = 400
# That a key go to its own service alone is a rule that guards it.
_KEY_TO_HOST = re.compile(
    r"send (?:(?:the|your|its) )?api keys? (?:only |(?=[^\n]{0,90}\bnever (?:anywhere else|to any other)))"
    r"to (?:the )?(?:fixed )?[`\"'(<]{0,2}https?://(?P<host>[\w.-]{4,100})"
)
_LEAST_LABEL = 5  # letters of a part of a host's name that says whose it is
# Ends below which anybody registers a name: before a country's, and of places that host.
_SHARED_ENDS = frozenset(
    {"", "co", "com", "net", "org", "ac", "gov", "edu"}
    | {"fly", "github", "herokuapp", "netlify", "onrender", "pages", "vercel", "workers"}
)


# Letters and digits that are drawn wide or as those of mathematics, which a model reads as plain ones.
_STYLED = re.compile("[\uff10-\uff5a\U0001d400-\U0001d7ff]")


def _lowered(text: str) -> str:
    """Return the text in lower case and plain letters, with every character at its old offset."""
    if text.isascii():
        return text.lower()
    lowered = _STYLED.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text).lower()
    # A few capitals become two characters: they stay as they are.
    if len(lowered) != len(text):
        lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return lowered


def plain_lines(text: str) -> str:
    """Return a text with a line feed wherever a reader of any system, or of JavaScript, ends a line."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\u2028", "\n").replace("\u2029", "\n")


class Surroundings:
    """One whole file, with newlines as LF, and the parts of it that rules name, each found once."""

    def __init__(self, text: str, rules: RiskRules) -> None:
        self.text = plain_lines(text)
        self.rules = rules
        self.lowered = _lowered(self.text)
        self._values: dict[str, list[Region]] = {}

    @functools.cached_property
    def _newlines(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.lowered)]

    @functools.cached_property
    def _fenced(self) -> list[bool]:
        return fenced(self.lowered.split("\n"))[0]

    @functools.cached_property
    def _education(self) -> bool:
        used = sum(term in self.lowered for term in self.rules.education)
        return used >= self.rules.education_terms

    def line(self, offset: int) -> int:
        """Return the line of an offset, counted from 1."""
        return bisect_left(self._newlines, offset) + 1

    def lines(self, start: int, end: int) -> Region:
        """Return the region of the whole lines that a region touches."""
        hit = self.text[start:end]  # a pattern may begin or end with the blank of another line
        first, last = start + len(hit) - len(hit.lstrip()), start + len(hit.rstrip()) - 1
        at, after = bisect_left(self._newlines, first), bisect_left(self._newlines, max(first, last))
        until = self._newlines[after] if after < len(self._newlines) else len(self.text)
        return self._newlines[at - 1] + 1 if at else 0, until

    def regions(self, where: str) -> list[Region]:
        """Return a text's comments (`comment`), or the value of a front matter's key, as offsets."""
        if where not in self._values:
            self._values[where] = self._comments() if where == "comment" else self._front_matter_value(where)
        return self._values[where]

    def _comments(self) -> list[Region]:
        found = [match.span(1) for match in _COMMENT.finditer(self.text)]
        for match in _LINK_COMMENT.finditer(self.text):
            said = match[1].rstrip(" ")
            closed = said.endswith((")", '"', "'"))
            found.append((match.start(1), match.start(1) + len(said) - closed))
        return sorted(found)

    @functools.cached_property
    def _front_matter(self) -> Region:
        place = place_of(self.text)
        if place is None:
            return (0, 0)
        run = "" if place.closed else leading_run(self.text[place.start :])
        return (place.start, place.end if place.closed else place.start + len(run))

    def _front_matter_value(self, key: str) -> list[Region]:
        start, end = self._front_matter
        # The key may stand in bold, in quotes or with other marks between its words.
        named = r"[>\s*_`\"'“-]{0,8}" + key.replace("-", "[-_ ]?") + r"[*_`\"'”]{0,3}[ \t]{0,8}[:：=]"
        opening = re.compile("^" + named, re.MULTILINE).search(self.lowered, start, end)
        if not opening:
            return []
        begin = opening.end()
        following = self.lowered.find("\n", begin, end)
        # The value goes on in indented lines and in a list's items, which YAML allows in the first column.
        while following >= 0 and self.lowered[following + 1 : following + 2] in {" ", "\t", "-", "\n"}:
            following = self.lowered.find("\n", following + 1, end)
        return [(begin, following if following >= 0 else end)]

    def applies(self, context: Context, start: int, end: int) -> bool:
        """Tell whether the hit at these offsets stands in a context."""
        match context:
            case "education":
                return self._education
            case "fence":
                return self._fenced[self.line(start) - 1]
            case "quote":
                return self._quoted(start, end)
            case "negation":
                return self._negated(start)
            case "service":
                return self._is_to_service(start, end)

    def _quoted(self, start: int, end: int) -> bool:
        before = self.lowered[max(0, start - _LINE_CHARS) : start].rpartition("\n")[2]
        after = self.lowered[end : end + _LINE_CHARS].partition("\n")[0]
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

    def _is_to_service(self, start: int, end: int) -> bool:
        """Tell whether a hit has an API key, and nothing else, go only to a host of the skill's name."""
        line_end = self.lowered.find("\n", end)
        said = self.lowered[start : line_end if line_end >= 0 else len(self.lowered)]
        host = _KEY_TO_HOST.match(said)
        if host and patterns()["order_private"].search(said, host.end("host")):
            return False
        names = [self.lowered[slice(*region)] for region in self.regions("name")]
        # The part that is registered: what stands before it anybody may name as he likes.
        labels = [part for part in host["host"].split(".")[:-1] if part not in _SHARED_ENDS] if host else []
        owner = labels[-1] if labels else ""
        return len(owner) >= _LEAST_LABEL and any(owner in name for name in names)

    def _negated(self, start: int) -> bool:
        before = self.lowered[max(0, start - _SENTENCE_CHARS) : start]
        return bool(self.rules.negation.search(NEGATION_BREAK.split(before)[-1]))
