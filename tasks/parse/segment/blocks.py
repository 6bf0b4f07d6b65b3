"""Blocks of a Markdown body: leaves, each a range of whole lines, that hold every non-blank line.

The blocks are those of CommonMark with tables, by the rules of markdown-it; inline markup is not parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

_NEWLINE = re.compile(r"\r\n?|\n")
# The library's rules take 1.9 ms a document, the mean of 2,500. No hostile text of 80 KB made them quadratic.
# Link reference definitions stay paragraphs: otherwise their text would lie in no block.
_PARSER = MarkdownIt("commonmark").enable("table").disable("reference")
_LEAVES = {"paragraph_open": "paragraph", "heading_open": "heading", "table_open": "table"}
_INSIDE = {"inline", "paragraph_close", "heading_close"}


def block_tokens(body: str) -> list[Token]:
    """Return markdown-it's block tokens of any text, with line ranges in `map`.

    Leaves are one token each: `paragraph`, `heading`, `table`, `fence`, `code_block`, `html_block`, `hr`. A
    setext heading has `=` or `-` as its markup. Lines end at LF, CR LF or CR and nothing else. Beyond 20
    levels of nesting the parser skips text without a token.
    """
    source = _NEWLINE.sub("\n", body) if "\r" in body else body
    tokens: list[Token] = []
    _PARSER.block.parse(source.replace("\0", "\ufffd"), _PARSER, {}, tokens)
    return list(_as_leaves(tokens))


def _as_leaves(tokens: list[Token]) -> Iterator[Token]:
    """Yield one token for each paragraph, heading and table; cells have none of their own."""
    in_table = False
    for token in tokens:
        if token.type == "table_close":
            in_table = False
        elif not in_table and token.type not in _INSIDE:
            in_table = token.type == "table_open"
            token.type = _LEAVES.get(token.type, token.type)
            yield token


Kind = Literal["heading", "text", "code", "table", "html", "break", "margin"]
# Paragraphs with `---` right below are rarely titles: of 36 in 2,000 real skills none was.
_LONGEST_TITLE = 80
_NO_TITLE = (".", ":", ";", ",", "!", "。", "：", "**")
_MARGIN = re.compile(r"[\s>]*")
_KINDS: dict[str, Kind] = {
    "paragraph": "text", "heading": "heading", "fence": "code", "code_block": "code",
    "table": "table", "html_block": "html", "hr": "break",
}  # fmt: skip
_OPENS = ("blockquote_open", "bullet_list_open", "ordered_list_open", "list_item_open")
_CLOSES = ("blockquote_close", "bullet_list_close", "ordered_list_close", "list_item_close")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One list item; `siblings` is a number shared by the items of one list."""

    parent: Item | None
    siblings: int


class Leaf(NamedTuple):
    """A block without blocks inside: its lines `body[start:end]`, and the innermost list item it stands in.

    `margin` is a line of nothing but quote markers; `break` a thematic break outside of lists.
    """

    kind: Kind
    start: int
    end: int
    item: Item | None


def line_starts(body: str) -> list[int]:
    """Return the offset of each line (LF, CR LF and CR end one), and the body's length at the end."""
    starts = [0, *[m.end() for m in _NEWLINE.finditer(body)]]
    return starts if starts[-1] == len(body) else [*starts, len(body)]


@dataclass(slots=True)
class _Reader:
    """Walks the tokens with one cursor, so that leaves come out ordered, disjoint and without holes."""

    body: str
    starts: list[int]
    leaves: list[Leaf] = field(default_factory=list)
    line: int = 0
    item: Item | None = None
    siblings: int = 0
    lists: int = 0
    outer: list[tuple[int, Item | None, int]] = field(default_factory=list)

    def add(self, kind: Kind, until: int) -> None:
        """Make a leaf of the lines from the cursor to `until`, unless they are blank."""
        until = min(until, len(self.starts) - 1)
        if until > self.line:
            start, end = self.starts[self.line], self.starts[until]
            self.line = until
            if not self.body[start:end].isspace():
                self.leaves.append(Leaf(kind, start, end, self.item))

    def text(self, line: int) -> str:
        """Return one line, stripped."""
        return self.body[self.starts[line] : self.starts[line + 1]].strip()

    def fill(self, until: int) -> None:
        """Make leaves of the lines before `until` that the parser took no token for."""
        until = min(until, len(self.starts) - 1)
        while self.line < until:
            line = self.line + 1
            if _MARGIN.fullmatch(self.text(self.line)):
                self.add("margin", line)
                continue
            while line < until and not _MARGIN.fullmatch(self.text(line)):
                line += 1
            self.add("text", line)

    def enter(self, token: Token, first: int, last: int) -> None:
        """Go into a quote, a list or an item."""
        if self.line < first:
            self.fill(first)
        self.outer.append((last, self.item, self.siblings))
        if token.type == "list_item_open":
            self.item = Item(self.item, self.siblings)
        elif token.type != "blockquote_open":
            self.lists += 1
            self.siblings = self.lists

    def leave(self) -> None:
        """Go back out; what is left of the container is its own text."""
        last, item, siblings = self.outer.pop()
        if self.line < last:
            self.fill(last)
        self.item, self.siblings = item, siblings

    def leaf(self, token: Token, first: int, last: int) -> None:
        """Take one leaf token; only headings outside of lists and quotes are headings."""
        if self.line < first:
            self.fill(first)
        kind = _KINDS[token.type]
        if (kind == "heading" and token.level) or (kind == "break" and self.item):
            kind = "text"
        elif kind == "heading" and token.markup == "-" and not self.titled(first, last):
            self.add("text", last - 1)
            kind = "break"
        self.add(kind, last)

    def titled(self, first: int, last: int) -> bool:
        """Tell a title underlined with `---` from a paragraph whose author meant a rule below it."""
        title = self.text(first)
        return last - first == 2 and len(title) <= _LONGEST_TITLE and not title.endswith(_NO_TITLE)


def read_blocks(body: str) -> list[Leaf]:
    """Return the leaf blocks of any text in document order; every non-blank character lies in exactly one."""
    reader = _Reader(body, line_starts(body))
    for token in block_tokens(body):
        if token.type in _CLOSES:
            reader.leave()
        elif token.map and token.type in _OPENS:
            reader.enter(token, *token.map)
        elif token.map and token.type in _KINDS:
            reader.leaf(token, *token.map)
    reader.fill(len(reader.starts) - 1)
    return reader.leaves
