"""Blocks of a Markdown body: leaves of whole lines that together hold every non-blank line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.token import Token

Kind = Literal["heading", "text", "code", "table", "html", "break", "margin"]
_NEWLINE = re.compile(r"\r\n?|\n")
# Paragraphs with `---` right below are rarely titles: of 36 in 2,000 real skills none was.
_LONGEST_TITLE = 80
_NO_TITLE = (".", ":", ";", ",", "!", "。", "：", "**")
_MARGIN = re.compile(r"[\s>]*")
_KINDS: dict[str, Kind] = {
    "paragraph_open": "text", "heading_open": "heading", "fence": "code", "code_block": "code",
    "table": "table", "html_block": "html", "hr": "break",
}  # fmt: skip
_OPENS = ("blockquote_open", "bullet_list_open", "ordered_list_open", "list_item_open")
_CLOSES = ("blockquote_close", "bullet_list_close", "ordered_list_close", "list_item_close")
# A row of these alone ends a table; releases of markdown-it-py 4 differ in what they strip.
_WHITE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Consume a table as one token, without its cells, in linear time.

    The library's rule makes three tokens a cell, and fills short rows with empty cells: 80 KB of tables with
    180 columns and rows `x` took it 25 s and 3.5 GB; this rule takes 0.02 s.
    """
    found = table(state, start, end, True)
    if silent or not found:
        return found
    outer, state.parentType = state.parentType, "table"
    # What interrupts a quote ends a table, as in the library's rule.
    interrupting = state.md.block.ruler.getRules("blockquote")
    line = start + 2
    while (
        line < end
        and state.sCount[line] >= state.blkIndent
        and not any(rule(state, line, end, True) for rule in interrupting)
        and state.src[state.bMarks[line] : state.eMarks[line]].strip(_WHITE)
        and not state.is_code_block(line)
    ):
        line += 1
    state.push("table", "", 0).map = [start, line]
    state.parentType, state.line = outer, line
    return True


# Reference definitions stay paragraphs, since the library leaves no token where they stood.
_PARSER = MarkdownIt("commonmark").disable("reference").enable("table")
_PARSER.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})


def block_tokens(body: str) -> list[Token]:
    """Return markdown-it's block tokens of any text, with line ranges in `map`; a table is one token.

    Inline markup is not looked at. Lines end at LF, CR LF or CR. Beyond 20 levels of nesting the parser
    skips text without a token.
    """
    tokens: list[Token] = []
    _PARSER.block.parse(_NEWLINE.sub("\n", body).replace("\0", "\ufffd"), _PARSER, {}, tokens)
    return tokens


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One list item; `siblings` is a number shared by the items of one list."""

    parent: Item | None
    siblings: int

    @property
    def outermost(self) -> int:
        """The number of the list around it that lies in no other."""
        item = self
        while item.parent is not None:
            item = item.parent
        return item.siblings


class Leaf(NamedTuple):
    """A block without blocks inside: its lines `body[start:end]`, and the innermost list item around it.

    `margin` is a line of nothing but quote markers; `break` a thematic break outside of lists.
    """

    kind: Kind
    start: int
    end: int
    item: Item | None


@dataclass(slots=True)
class _BlockReader:
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
        # The library can count one line more than the body has.
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
        """Make leaves of the lines before `until` for which the parser made no token."""
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
        """Enter a quote, a list or a list item."""
        self.fill(first)
        self.outer.append((last, self.item, self.siblings))
        if token.type == "list_item_open":
            self.item = Item(self.item, self.siblings)
        elif token.type != "blockquote_open":
            self.lists += 1
            self.siblings = self.lists

    def leave(self) -> None:
        """Leave the innermost container; lines that remain in it are its own text."""
        last, item, siblings = self.outer.pop()
        self.fill(last)
        self.item, self.siblings = item, siblings

    def leaf(self, token: Token, first: int, last: int) -> None:
        """Add the leaf of one token; only headings outside of lists and quotes are headings."""
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
    starts = [0, *(found.end() for found in _NEWLINE.finditer(body))]
    reader = _BlockReader(body, starts if starts[-1] == len(body) else [*starts, len(body)])
    for token in block_tokens(body):
        if token.type in _CLOSES:
            reader.leave()
        elif token.map and token.type in _OPENS:
            reader.enter(token, *token.map)
        elif token.map and token.type in _KINDS:
            reader.leaf(token, *token.map)
    reader.fill(len(reader.starts) - 1)
    return reader.leaves
