"""Hidden text: what a reader of the rendered page does not see, and what no ranking may count."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from storage.schemas import Finding
from tasks.refine.text.rules import finding

MOST_TOLD = 160  # characters of attributes, of a picture's text or a link's title: one sentence needs no more
# A tag ends in its paragraph; what stands in quotes does not end it.
_TAG = (
    r"(?P<tag>[a-z][a-z0-9]{0,15}(?:-[a-z0-9-]{1,40})?)(?P<attributes>(?:(?=[\s/])(?:[^<>\"'\n]++|\n(?!\n)"
    r"|\"(?:[^\"\n]++|\n(?!\n))*+\"|'(?:[^'\n]++|\n(?!\n))*+'){0,200}+)?)>"
)
_MARK = re.compile(
    r"(?P<escape>\\[\\`<])|"
    # Code is seen as it is written: no mark in a fence or in backticks hides anything.
    r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})|(?P<ticks>`+)"
    rf"|(?P<comment><!--)|<{_TAG}"
    r"|^ {0,3}\[(?P<label>[^\[\]\n^][^\[\]\n]{0,200})\]:[ \t]*(?P<target><[^<>\n]*>|[^\s<]\S*+)"
    r"(?P<title>[^\n]*)"
    rf"|(?<=!\[)(?P<picture>[^\[\]\n]{{{MOST_TOLD},}})(?=\]\()"
    rf"|(?<=\]\()[^\s()<>]{{0,2000}}"
    rf"(?P<aside>[ \t]+(?:\"[^\"\n]{{{MOST_TOLD},}}\"|'[^'\n]{{{MOST_TOLD},}}'))",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE_END = re.compile(r"^[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_LINE_START = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*")
# What ends a paragraph: a blank line, an item, a heading, a row.
_BLOCK_END = re.compile(r"\n(?=\n|[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)]|#{1,6})[ \t]|\|))")
_INDENTED = re.compile(r"(?:\A|(?<=\n\n))(?:(?: {4}|\t)[^\n]*+(?:\n|\Z))+")
# Lines that begin an item, or end a list.
_LISTED = re.compile(
    r"^ {0,3}(?:(?P<item>(?:[-*+]|\d{1,9}[.)])(?=\s))|#{1,6}[ \t]|```|~~~)|(?<=\n\n)[^\s]", re.MULTILINE
)
_ITEM = re.compile(r"^[ \t]{0,40}(?:[-*+]|\d{1,9}[.)])[ \t]{1,4}(?=\S)", re.MULTILINE)
_ANY_TAG = re.compile(rf"<(?P<closing>/?){_TAG}", re.IGNORECASE)
_LABEL = re.compile(r"(?P<first>^ {0,3})?\[(?P<label>[^\[\]\n]{1,200})\](?P<colon>:)?", re.MULTILINE)
_TITLE_ENDS = {'"': '"', "'": "'", "(": ")"}
_VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})
_TAGS = _VOID | frozenset((
    "a", "abbr", "address", "article", "aside", "audio", "b", "bdi", "bdo", "big", "blockquote", "body",
    "button", "canvas", "caption", "center", "cite", "code", "dd", "del", "details", "dfn", "dialog", "div",
    "dl", "dt", "em", "fieldset", "figcaption", "figure", "font", "footer", "form", "h1", "h2", "h3", "h4",
    "h5", "h6", "header", "i", "iframe", "ins", "kbd", "label", "legend", "li", "main", "mark", "menu", "nav",
    "object", "ol", "optgroup", "option", "p", "picture", "pre", "q", "s", "samp", "section", "select",
    "small", "span", "strike", "strong", "sub", "summary", "sup", "svg", "table", "tbody", "td", "template",
    "textarea", "tfoot", "th", "thead", "time", "tr", "tt", "u", "ul", "var", "video",
))  # fmt: skip
_VALUE = re.compile(r"([^\s\"'<>/=]{1,60})\s{0,8}=\s{0,8}(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)")
_ZERO = r"(?:0{1,9}(?:\.0{0,9})?|\.0{1,9})(?:[a-z]{2,4}|%)?"
# Whole declarations of a style; those of the second pattern hide what flows over.
_HIDES = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|color:transparent"
    rf"|font-size:(?:1px|{_ZERO})|opacity:{_ZERO}|text-indent:-\d{{3,}}.*"
)
_AWAY = re.compile(r"(?:left|right|top):-\d{3,}.*")  # hides only what has a position
_PLACED = frozenset({"position:absolute", "position:fixed", "position:relative"})
_SAME_COLOURS = {"white": "#fff", "#ffffff": "#fff", "black": "#000", "#000000": "#000"}
_NO_COLOURS = frozenset({"", "inherit", "initial", "unset", "revert", "currentcolor", "transparent"})
_FLAT = re.compile(rf"(?:max-)?height:{_ZERO}")
_TELLS = re.compile(r"title|alt|content|value|placeholder|label|summary|(?:data|aria)-.*", re.IGNORECASE)
_ADDRESS = re.compile(r"\A(?:[<#/.]|[\w+.-]*[:./])")
# Cheap tests, of which most texts pass none: then they are not read mark by mark.
_MAYBE = (
    re.compile("<!--"),
    re.compile(r"<[a-z][a-z0-9-]*+\s[^<>]*(?:=|hidden)", re.IGNORECASE),
    re.compile(r"\n {0,3}\[[^\[\]\n]{1,201}\]:"),
    re.compile(rf"!\[[^\[\]\n]{{{MOST_TOLD}}}"),
    re.compile(rf"\]\([^\s()<>]*[ \t]+[\"'][^\n]{{{MOST_TOLD}}}"),
)
# Tags spell the flag of a region behind a black flag; elsewhere nobody sees them, nor runs of selectors.
_SHAPELESS = re.compile(
    "(\U0001f3f4[\U000e0020-\U000e007f]{1,8})|[\U000e0000-\U000e007f]+|[\U000e0100-\U000e01ef\ufe00-\ufe0f]{3,}"
)

_MAYBE_SHAPELESS = re.compile(
    "[\ufe00-\ufe0f\U000e0000-\U000e01ef]"
    "(?:(?<=[\U000e0000-\U000e007f])|[\U000e0100-\U000e01ef\ufe00-\ufe0f]{2})"
)
_NEAR_MARK = re.compile(r"[\\`<\n\[(]")  # a mark begins with the former, or right behind the latter


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
    if not clear.isascii() and _MAYBE_SHAPELESS.search(clear):
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
        while mark := self._mark(at):
            if on := mark.end() if mark["escape"] else self._code_end(mark.start()):
                at = on
                continue
            start, end, kind = self._of(mark)
            at = max(end, mark.start() + 1)
            if kind:
                yield start, end, kind

    def _mark(self, at: int) -> re.Match[str] | None:
        """Return the first mark from an offset on, by looking only where one may begin."""
        near = (one.end() - (one[0] in "\\`<") for one in _NEAR_MARK.finditer(self.text, at))
        for place in chain((at,), near):
            if mark := _MARK.match(self.text, place):
                return mark
        return None

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
        if following < len(runs) and runs[following] < self._block_end(mark.end()):
            return runs[following] + len(mark["ticks"])
        return mark.end()

    def _block_end(self, at: int) -> int:
        following = bisect_left(self._block_ends, at)
        return self._block_ends[following] if following < len(self._block_ends) else len(self.text)

    @functools.cached_property
    def _block_ends(self) -> list[int]:
        return [end.start() for end in _BLOCK_END.finditer(self.text)]

    def _code_end(self, at: int) -> int:
        """Return the end of the indented code around an offset, 0 if none is."""
        before = bisect_right(self._code, (at, len(self.text))) - 1
        end = self._code[before][1] if before >= 0 else 0
        return end if at < end else 0

    @functools.cached_property
    def _code(self) -> list[tuple[int, int]]:
        """The indented code: below an item it begins four columns further in than the item's text."""
        if (
            not self.text.startswith((" ", "\t"))
            and "\n\n    " not in self.text
            and "\n\n\t" not in self.text
        ):
            return []
        lines = [(line.start(), bool(line["item"])) for line in _LISTED.finditer(self.text)]
        spans = [block.span() for block in _INDENTED.finditer(self.text)]
        above = [bisect_left(lines, (start, False)) - 1 for start, _ in spans]
        return [
            span
            for span, line in zip(spans, above, strict=True)
            if line < 0 or not lines[line][1] or not self._is_in_item(span[0])
        ]

    def _is_in_item(self, at: int) -> bool:
        """Tell whether an indented line is the text of the last item above."""
        before = bisect_left(self._items, (at, "")) - 1
        head = self.text[at : at + 80].expandtabs(4)
        inside = len(self._items[before][1].expandtabs(4)) if before >= 0 else 0
        return len(head) - len(head.lstrip(" ")) < inside + 4

    @functools.cached_property
    def _items(self) -> list[tuple[int, str]]:
        return [(item.start(), item[0]) for item in _ITEM.finditer(self.text)]

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
        if _LINE_START.fullmatch(self.text, line, mark.start()) or end < self._block_end(mark.end()):
            return mark.start(), min(end + 3, len(self.text)), "comment"
        return 0, mark.end(), ""

    def _element(self, mark: re.Match[str]) -> tuple[int, int, str]:
        tag, attributes = mark["tag"].lower(), mark["attributes"]
        closed = self._element_ends.get(mark.start())
        if not attributes or (tag not in _TAGS and "-" not in tag):
            return 0, mark.end(), ""
        # The first of two is the one that counts.
        found = reversed(_VALUE.findall(attributes))
        values = {name.lower(): value.strip("\"'") for name, value in found}
        if _is_hidden(tag, values, _VALUE.sub(" ", attributes).lower().replace("/", " ").split()):
            if tag in _VOID:
                return *mark.span(), "hidden element"
            line = self.text.rfind("\n", 0, mark.start()) + 1
            alone = not self.text[line : mark.start()].strip()
            block = self._next("\n\n", mark.end()) if alone else self._block_end(mark.end())
            return mark.start(), closed or block, "hidden element"
        if sum(len(value) for name, value in values.items() if _TELLS.fullmatch(name)) > MOST_TOLD:
            return *mark.span("attributes"), "overlong attributes"
        return 0, mark.end(), ""

    @functools.cached_property
    def _element_ends(self) -> dict[int, int]:
        """The end of each element that is closed, by its start; one paragraph ends where another begins."""
        ends: dict[int, int] = {}
        opened: defaultdict[str, list[int]] = defaultdict(list)
        for mark in _ANY_TAG.finditer(self.text):
            starts = opened[mark["tag"].lower()]
            if starts and (mark["closing"] or mark["tag"] in "pP"):
                ends[starts.pop()] = mark.end() if mark["closing"] else mark.start()
            if not mark["closing"]:
                starts.append(mark.start())
        return ends

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


def _is_hidden(tag: str, values: dict[str, str], bare: list[str]) -> bool:
    """Tell whether an element's attributes hide it; what a program computes, in braces, is not known."""
    value = values.get("hidden", "until-found").lower()
    if "hidden" in bare or (value != "until-found" and not value.startswith("{")):
        return True
    style = re.sub(r"\s+|!\s*important", "", values.get("style", "").lower()).split(";")
    if any(map(_HIDES.fullmatch, style)) or ("overflow:hidden" in style and any(map(_FLAT.fullmatch, style))):
        return True
    if any(map(_AWAY.fullmatch, style)) and not _PLACED.isdisjoint(style):
        return True
    said = {name: value for name, _, value in (part.partition(":") for part in style)}
    colours = [said.get(name, "") for name in ("color", "background", "background-color")]
    text, *behind = (_SAME_COLOURS.get(colour, colour) for colour in colours)
    if text in behind and text not in _NO_COLOURS and not text.startswith(("var(", "{")):
        return True
    return tag == "input" and values.get("type", "").lower() == "hidden"
