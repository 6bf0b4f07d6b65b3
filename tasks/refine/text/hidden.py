"""Hidden text: what a reader of the rendered page does not see, and what no ranking may count."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from storage.schemas import Finding
from tasks.refine.text.rules import finding

MOST_TOLD = 160  # characters of attributes, of a picture's text or a link's title: one sentence needs no more
_MARK = re.compile(
    # Code is seen as it is written: no mark in a fence or in backticks hides anything.
    r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})|(?P<ticks>`+)"
    r"|(?P<comment><!--)|<(?P<tag>[a-z][a-z0-9]{0,15})(?P<attributes>(?:\s[^<>]*)?)>"
    r"|^ {0,3}\[(?P<label>[^\[\]\n^][^\[\]\n]{0,200})\]:[ \t]*(?P<target><[^<>\n]*>|[^\s<]\S*+)"
    r"(?P<title>[^\n]*)"
    rf"|(?<=!\[)(?P<picture>[^\[\]\n]{{{MOST_TOLD},}})(?=\]\()"
    rf"|(?<=\]\()[^\s()<>]{{0,2000}}"
    rf"(?P<aside>[ \t]+(?:\"[^\"\n]{{{MOST_TOLD},}}\"|'[^'\n]{{{MOST_TOLD},}}'))",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE_END = re.compile(r"^[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_LINE_START = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*")
_LABEL = re.compile(r"(?P<first>^ {0,3})?\[(?P<label>[^\[\]\n]{1,200})\](?P<colon>:)?", re.MULTILINE)
_TITLE_ENDS = {'"': '"', "'": "'", "(": ")"}
_VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})
_TAGS = _VOID | frozenset((
    "a", "abbr", "article", "aside", "b", "blockquote", "center", "dd", "details", "div", "dl", "dt",
    "em", "figure", "font", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "i", "ins",
    "label", "li", "main", "nav", "ol", "p", "pre", "section", "small", "span", "strong", "sub",
    "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
))  # fmt: skip
_VALUE = re.compile(r"([a-z][\w-]{0,40})\s{0,8}=\s{0,8}(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)", re.IGNORECASE)
_HIDES = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|color\s*:\s*transparent|font-size\s*:\s*1px"
    r"|(?:font-size|opacity|height)\s*:\s*0(?:\.0{1,4})?(?:px|pt|r?em|%)?\s*(?:[;!\"']|$)"
    r"|(?:left|right|top|text-indent)\s*:\s*-\d{3,}",
    re.IGNORECASE,
)
_TELLS = re.compile(r"title|alt|content|value|placeholder|label|summary|(?:data|aria)-.*", re.IGNORECASE)
_ADDRESS = re.compile(r"\A(?:[<#/.]|[\w+.-]*[:./])")
# Cheap tests, of which most texts pass none: then they are not read mark by mark.
_MAYBE = (
    re.compile("<!--"),
    re.compile(r"<[a-z][a-z0-9]*\s[^<>]*=|<[a-z]+ hidden", re.IGNORECASE),
    re.compile(r"\n {0,3}\[[^\[\]\n]{1,201}\]:"),
    re.compile(rf"!\[[^\[\]\n]{{{MOST_TOLD}}}"),
    re.compile(rf"\]\([^\s()<>]*[ \t]+[\"'][^\n]{{{MOST_TOLD}}}"),
)
# Tags spell the flag of a region behind a black flag; elsewhere nobody sees them, nor runs of selectors.
_SHAPELESS = re.compile(
    "(\U0001f3f4[\U000e0020-\U000e007f]{1,8})|[\U000e0000-\U000e007f]+|[\U000e0100-\U000e01ef\ufe00-\ufe0f]{3,}"
)


def without_hidden(text: str) -> tuple[str, tuple[Finding, ...]]:
    """Return a canonical text without what a reader of its page does not see, and a finding on that.

    Left out are comments, hidden elements, definitions of links that nothing refers to, overlong titles,
    pictures' texts and attributes, and characters without a shape. Code stays as it is. Time is linear.
    """
    kinds: Counter[str] = Counter()
    shown, at = [], 0
    maybe = any(test.search("\n" + text) for test in _MAYBE)
    for start, end, kind in _Scan(text).hidden() if maybe else ():
        kinds[kind] += 1
        shown.append(text[at:start])
        at = _line_end(text, start, end)
    clear = "".join(shown) + text[at:]
    if not clear.isascii():
        kinds["characters without a shape"] = sum(not m[1] for m in _SHAPELESS.finditer(clear))
        clear = _SHAPELESS.sub(lambda m: m[1] or "", clear)
    named = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(kinds.items()) if count)
    if not named:
        return text, ()
    return clear, (
        finding("document.hidden-text", f"{len(text) - len(clear):,} characters left out: {named}"),
    )


def _line_end(text: str, start: int, end: int) -> int:
    """Return where a text goes on behind hidden text: with it goes its line, if it stood alone."""
    alone = not start or text.endswith("\n\n", 0, start)
    while alone and text[end : end + 1] == "\n":
        end += 1
    return end


class _Scan:
    """One text, read once from its start, with what closes its marks found once, too."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._found: dict[str, int] = {}

    def hidden(self) -> Iterator[tuple[int, int, str]]:
        """Yield the start and end of each hidden text, in order and apart, and what hides it."""
        at = 0
        while mark := _MARK.search(self.text, at):
            start, end, kind = self._of(mark)
            at = max(end, mark.start() + 1)
            if kind:
                yield start, end, kind

    def _of(self, mark: re.Match[str]) -> tuple[int, int, str]:
        """Return what a mark hides, or, with no kind, where to go on."""
        if mark["fence"]:
            return 0, self._fence_end(mark), ""
        if mark["ticks"]:
            return 0, self._span_end(mark), ""
        if mark["comment"]:
            return self._comment(mark)
        if mark["tag"]:
            return self._element(mark)
        if mark["label"]:
            return self._definition(mark)
        part = "picture" if mark["picture"] else "aside"
        return *mark.span(part), "overlong title"

    def _next(self, needle: str, at: int) -> int:
        """Return where a needle is found next, the text's length if nowhere; `at` never goes back."""
        found = self._found.get(needle, -1)
        if found < at:
            found = self.text.find(needle, at)
            self._found[needle] = found = found if found >= 0 else len(self.text)
        return found

    def _fence_end(self, mark: re.Match[str]) -> int:
        for closing in _FENCE_END.finditer(self.text, mark.end()):
            if closing["fence"].startswith(mark["fence"]):
                return closing.end()
        return len(self.text)

    def _span_end(self, mark: re.Match[str]) -> int:
        """Return the end of inline code: the next run of as many backticks in its paragraph."""
        runs = self._runs[len(mark["ticks"])]
        following = bisect_right(runs, mark.start())
        if following < len(runs) and runs[following] < self._next("\n\n", mark.end()):
            return runs[following] + len(mark["ticks"])
        return mark.end()

    @functools.cached_property
    def _runs(self) -> dict[int, list[int]]:
        runs: defaultdict[int, list[int]] = defaultdict(list)
        for run in re.finditer("`+", self.text):
            runs[len(run[0])].append(run.start())
        return runs

    def _comment(self, mark: re.Match[str]) -> tuple[int, int, str]:
        """A comment in a line ends in its paragraph, or is none; one with a line of its own ends anywhere."""
        end = self._next("-->", mark.end())
        line = self.text.rfind("\n", 0, mark.start()) + 1
        if _LINE_START.fullmatch(self.text, line, mark.start()) or end < self._next("\n\n", mark.end()):
            return mark.start(), min(end + 3, len(self.text)), "comment"
        return 0, mark.end(), ""

    def _element(self, mark: re.Match[str]) -> tuple[int, int, str]:
        tag, attributes = mark["tag"].lower(), mark["attributes"]
        if tag not in _TAGS or not attributes:
            return 0, mark.end(), ""
        values = {name.lower(): value.strip("\"'") for name, value in _VALUE.findall(attributes)}
        bare = _VALUE.sub(" ", attributes).lower().split()
        hidden = "hidden" in bare or values.get("hidden", "until-found").lower() != "until-found"
        if hidden or values.get("type", "").lower() == "hidden" or _HIDES.search(values.get("style", "")):
            end = mark.end() if tag in _VOID else self._element_end(tag, mark.end())
            return mark.start(), end, "hidden element"
        if sum(len(value) for name, value in values.items() if _TELLS.fullmatch(name)) > MOST_TOLD:
            return *mark.span("attributes"), "overlong attributes"
        return 0, mark.end(), ""

    def _element_end(self, tag: str, at: int) -> int:
        """Return the end of an element whose content starts at an offset; unclosed, it is the text's."""
        depth = 1
        for other in re.compile(rf"<(/?){tag}(?=[\s>/])[^<>]*>", re.IGNORECASE).finditer(self.text, at):
            depth += -1 if other[1] else 1
            if not depth:
                return other.end()
        return len(self.text)

    def _definition(self, mark: re.Match[str]) -> tuple[int, int, str]:
        """A definition ends behind its target, or with a title that may have several lines."""
        title, end = mark["title"].strip(), mark.end()
        on = mark.end("label") + 2
        # A word alone is somebody's way to write a list.
        if not title and not _ADDRESS.match(mark["target"]):
            return 0, on, ""
        if title:
            closes = _TITLE_ENDS.get(title[0])
            if closes is None:
                return 0, on, ""
            if len(title) < 2 or not title.endswith(closes):
                end = self._next(closes, mark.end()) + 1
                if end > self._next("\n\n", mark.end()):
                    return 0, on, ""
        if mark["label"].casefold() not in self._used:
            return mark.start(), end, "unused link definition"
        if end - mark.start("title") > MOST_TOLD:
            return mark.start("title"), end, "overlong title"
        return 0, on, ""

    @functools.cached_property
    def _used(self) -> set[str]:
        labels = _LABEL.finditer(self.text)
        return {m["label"].casefold() for m in labels if m["first"] is None or not m["colon"]}
