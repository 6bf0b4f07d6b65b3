"""The units of a page: whole nodes, and parts of long nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storage.schemas import Node
from tasks.refine.text.markdown import FENCE
from tasks.refine.text.sentences import NODE_BREAK
from tasks.retrieve.paging.context import Span
from tasks.retrieve.paging.terms import Integers

# A node of more tokens is cut, into parts of about this many.
_LONGEST = 60
_PART = 40
_TOKEN = re.compile(r"[A-Za-z]{1,8}|\d{1,3}|[^\sA-Za-z\d]")


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one document in order, `n` of them; offsets are in the body.

    Args:
        owner: Ordinal of the node of each unit, shape `(n,)`.
        tokens: Approximate tokens of each unit; the parts of a node sum up to less than the node.
        first: First unit of each node, and `n` at the end, shape `(nodes + 1,)`.
        frame: Approximate tokens printed around the parts of each node: fences, a table's header.
    """

    start: Integers
    end: Integers
    owner: Integers
    tokens: Integers
    first: Integers
    frame: Integers


def cut(body: str, nodes: Sequence[Node]) -> Units:
    """Return a document's units: code is cut between lines, tables between rows, the rest at sentences."""
    spans: list[Span] = []
    tokens: list[int] = []
    owner: list[int] = []
    frame = [0] * len(nodes)
    for ordinal, node in enumerate(nodes):
        parts = _parts(body, node)
        sizes = [node.n_tokens]
        if len(parts) > 1:
            inner = [_about(body, start, end) for start, end in parts]
            scale = node.n_tokens / max(_about(body, node.start, node.end), 1)
            sizes = [max(1, round(size * scale)) for size in inner]
            frame[ordinal] = max(0, node.n_tokens - sum(sizes))
        spans += parts
        tokens += sizes
        owner += [ordinal] * len(parts)
    bounds = np.array(spans, dtype=np.int64).reshape(len(spans), 2)
    owners = np.array(owner, dtype=np.int64)
    first = np.searchsorted(owners, np.arange(len(nodes) + 1))
    return Units(bounds[:, 0], bounds[:, 1], owners, np.array(tokens, dtype=np.int64), first, np.array(frame))


def frame_of(body: str, node: Node) -> tuple[str, str]:
    """Return the text before and after the parts of a node that is printed in parts; either may be empty.

    A fenced block has its fences, a table its header and rule.
    """
    lines = list(_lines(body, node.start, node.end))
    if node.block == "code" and len(lines) > 2 and FENCE.match(body, lines[0][0]):
        closed = FENCE.match(body, lines[-1][0]) is not None
        return _text(body, lines[:1]), _text(body, lines[-1:]) if closed else ""
    if node.block == "table" and len(lines) > 3:
        return _text(body, lines[:2]), ""
    return "", ""


def _parts(body: str, node: Node) -> list[Span]:
    parts: list[Span] = []
    if node.n_tokens <= _LONGEST or node.block == "html":  # half an HTML block may not render
        pass
    elif node.block == "code":
        parts = _code(body, node)
    elif node.block == "table":
        lines = list(_lines(body, node.start, node.end))
        parts = lines[2:] if len(lines) > 3 else []
    else:
        parts = _sentences(body, node)
    return parts or [(node.start, node.end)]


def _code(body: str, node: Node) -> list[Span]:
    """Cut a block of code at blank lines, and its longer paragraphs into groups of lines."""
    lines = list(_lines(body, node.start, node.end))
    before, after = frame_of(body, node)
    inner = lines[bool(before) : len(lines) - bool(after)]
    scale = node.n_tokens / max(_about(body, node.start, node.end), 1)
    found: list[Span] = []
    for paragraph in _paragraphs(body, inner):
        sizes = [scale * _about(body, *line) for line in paragraph]
        share = sum(sizes) / max(1, -(-sum(sizes) // _PART))
        found += _grouped(paragraph, sizes, 1.25 * share)
    return found


def _paragraphs(body: str, lines: Sequence[Span]) -> Iterator[list[Span]]:
    held: list[Span] = []
    for line in lines:
        if held and body[held[-1][1] : line[0]].count("\n") > 1:
            yield held
            held = []
        held.append(line)
    if held:
        yield held


def _grouped(lines: Sequence[Span], sizes: Sequence[float], most: float) -> Iterator[Span]:
    start, size = 0, 0.0
    for position, added in enumerate(sizes):
        if position > start and size + added > most:
            yield lines[start][0], lines[position - 1][1]
            start, size = position, 0.0
        size += added
    yield lines[start][0], lines[-1][1]


def _sentences(body: str, node: Node) -> list[Span]:
    found: list[Span] = []
    start = node.start
    for match in NODE_BREAK.finditer(body, node.start, node.end):
        if _about(body, start, match.start()) >= _PART // 3:
            found.append((start, match.start()))
            start = match.end()
    return [*found, (start, node.end)]


def _lines(body: str, start: int, end: int) -> Iterator[Span]:
    """Yield the lines that are not blank, without their ends."""
    while start < end:
        at = body.find("\n", start, end)
        stop = end if at < 0 else at
        if not body[start:stop].isspace() and start < stop:
            yield start, stop
        start = stop + 1


def _text(body: str, lines: Sequence[Span]) -> str:
    return "\n".join(body[start:end] for start, end in lines)


def _about(body: str, start: int, end: int) -> int:
    return sum(1 for _ in _TOKEN.finditer(body, start, end))
