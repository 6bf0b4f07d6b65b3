"""CommonMark blocks and tables, structure only: markdown-it's rules, chosen by a line's first character."""

from __future__ import annotations

import re
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.common.utils import isStrSpace
from markdown_it.rules_block import StateBlock, blockquote, fence, hr, html_block, list_block, table
from markdown_it.token import Token

Rule = Callable[[StateBlock, int, int, bool], bool]
_NEWLINE = re.compile(r"\r\n?")
# A row of these alone ends a table, though CommonMark takes most of them for text.
_WHITE = "".join(
    map(
        chr, (*range(9, 14), 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
    )
)
_HASHES = re.compile(r"#{1,6}(?:[ \t]|$)")


def _atx(state: StateBlock, line: int, _end: int, silent: bool) -> bool:
    """Consume a heading of one to six `#` as one token."""
    at = state.bMarks[line] + state.tShift[line]
    if state.is_code_block(line) or not _HASHES.match(state.src, at, state.eMarks[line]):
        return False
    if not silent:
        state.line = line + 1
        state.push("heading", "", 0).map = [line, line + 1]
    return True


# Which rules can match a line, by its first character.
_BY_FIRST: dict[str, tuple[Rule, ...]] = {
    "`": (fence,), "~": (fence,), ">": (blockquote,), "-": (hr, list_block), "*": (hr, list_block),
    "_": (hr,), "+": (list_block,), "<": (html_block,), "#": (_atx,),
    **dict.fromkeys("0123456789", (list_block,)),
}  # fmt: skip
_ENDS_LIST: dict[str, tuple[Rule, ...]] = {
    "`": (fence,), "~": (fence,), ">": (blockquote,), "-": (hr,), "*": (hr,), "_": (hr,),
}  # fmt: skip


def _first(state: StateBlock, line: int) -> str:
    at = state.bMarks[line] + state.tShift[line]
    return state.src[at : at + 1] if at < state.eMarks[line] else ""


def _first_match(
    rules: dict[str, tuple[Rule, ...]], state: StateBlock, line: int, end: int, *, silent: bool
) -> bool:
    for rule in rules.get(_first(state, line), ()):  # noqa: SIM110 (a generator costs more than the rules)
        if rule(state, line, end, silent):
            return True
    return False


def _interrupted(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """End a quote or a table row: any block but a table, whose first line looks like text."""
    return silent and _first_match(_BY_FIRST, state, line, end, silent=True)


def _list_ended(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    return silent and _first_match(_ENDS_LIST, state, line, end, silent=True)


def _is_table(state: StateBlock, line: int, end: int) -> bool:
    return line + 1 < end and _first(state, line + 1) in ("|", "-", ":") and table(state, line, end, True)


def _table(state: StateBlock, start: int, end: int) -> None:
    """Consume a table as one token, without its cells."""
    old, state.parentType = state.parentType, "table"
    line = start + 2
    while (
        line < end
        and state.sCount[line] >= state.blkIndent
        and not _interrupted(state, line, end, True)
        and state.src[state.bMarks[line] : state.eMarks[line]].strip(_WHITE)
        and not state.is_code_block(line)
    ):
        line += 1
    state.push("table", "", 0).map = [start, line]
    state.parentType, state.line = old, line


def _underline(state: StateBlock, line: int) -> str:
    """Return `=` or `-` where the line underlines a setext else an empty string."""
    mark = _first(state, line)
    if mark not in ("=", "-") or state.sCount[line] < state.blkIndent:
        return ""
    at = state.skipCharsStr(state.bMarks[line] + state.tShift[line], mark)
    while at < state.eMarks[line] and isStrSpace(state.src[at]):
        at += 1
    return mark if at >= state.eMarks[line] else ""


def _paragraph(state: StateBlock, start: int, end: int) -> None:
    """Consume a paragraph or a setext heading in one pass (markdown-it's own two rules scan twice)."""
    old, state.parentType = state.parentType, "paragraph"
    line, mark = start + 1, ""
    while line < state.lineMax and not state.isEmpty(line):
        if state.sCount[line] - state.blkIndent <= 3:
            if line < end and (mark := _underline(state, line)):
                break
            # a negative indent marks a line that the enclosing quote has already looked at
            if state.sCount[line] >= 0 and (
                _interrupted(state, line, state.lineMax, True) or _is_table(state, line, state.lineMax)
            ):
                break
        line += 1
    state.line = line + 1 if mark else line
    token = state.push("heading" if mark else "paragraph", "", 0)
    token.map, token.markup = [start, state.line], mark
    state.parentType = old


def _block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Consume whatever block starts at `line`."""
    if silent:
        return False
    if _is_table(state, line, end):
        _table(state, line, end)
    elif not _first_match(_BY_FIRST, state, line, end, silent=False):
        _paragraph(state, line, end)
    return True


def _build() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    ruler = parser.block.ruler
    ruler.disable(ruler.get_all_rules())
    ruler.push("block", _block)
    ruler.push("interrupted", _interrupted, {"alt": ["blockquote"]})
    ruler.push("list_ended", _list_ended, {"alt": ["list"]})
    # tried before `block`; its name also tells the other rules that four spaces mean code
    ruler.enable("code")
    return parser


_PARSER = _build()


def block_tokens(body: str) -> list[Token]:
    """Return markdown-it's block tokens of any text, with line ranges in `map`, in linear time.

    Leaves are one token each: `paragraph`, `heading`, `table`, `fence`, `code_block`, `html_block`, `hr`.

    Link reference definitions are paragraphs here (so that nothing vanishes), tables have no cells, and
    inline markup is not looked at. Lines end at LF, CR LF or CR and nothing else. Beyond 20 levels of nesting
    the parser skips text without a token.
    """
    source = _NEWLINE.sub("\n", body) if "\r" in body else body
    tokens: list[Token] = []
    _PARSER.block.parse(source.replace("\0", "\ufffd"), _PARSER, {}, tokens)
    return tokens
