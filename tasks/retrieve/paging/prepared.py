"""A document prepared for paging before any request: its units, its sections and their shape."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.schemas import Node
from tasks.models.protocols import Vectors
from tasks.parse.segment.headings import Heading, headings_between
from tasks.refine.text.markdown import FENCE
from tasks.refine.text.words import NODE_BREAK
from tasks.retrieve.paging.context import Outline, Span, outline
from tasks.retrieve.paging.terms import Floats, Integers, WordIndex, index_words

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


_ABOUT = re.compile(
    r"\b(?:when to use|overview|introduction|references?|resources?|related|see also|licen[cs]e|version"
    r"|changelog|authors?|about|purpose|description|triggers?)\b",
    re.IGNORECASE,
)
_OPENING_NODES = 3
_FLAGS = ("code", "table", "list_item", "step", "example", "param", "precondition", "error_handling")
SHAPE = (
    *_FLAGS, "log_tokens", "log_node_tokens", "in_parts", "position", "opening", "depth", "about", "top",
    "announces", "log_document", "marked_code", "bold", "number", "typical", "part_position",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of a document before any request.

    Args:
        units: The units that a page consists of.
        where: The places of the headings among the nodes.
        section: Index of each unit's section, from 0, ascending; a section has one innermost heading.
        sections: First unit of each section.
        above: `above[:, s]`: the headings above section `s`, padded with `len(headings)`.
        lead: Ordinal of the node that announces each node, or -1.
        words: The words of the units; `title_words` are those of the headings.
        shape: The values that `SHAPE` names of each unit, shape `(len(SHAPE), units)`.
        section_vectors: Unit vector of the mean of each section's nodes.
    """

    units: Units
    headings: tuple[Heading, ...]
    where: Outline
    section: Integers
    sections: Integers
    above: Integers
    lead: Integers
    words: WordIndex
    title_words: WordIndex
    shape: Floats
    section_vectors: Vectors


def prepare_pages(body: str, nodes: Sequence[Node], vectors: Vectors) -> Prepared:
    """Prepare a document from all of its nodes, at least one, and their vectors."""
    spans = [(node.start, node.end) for node in nodes]
    headings = headings_between(body, spans)
    units = cut(body, nodes)
    starts = np.array([h.start for h in headings], dtype=np.int64)
    behind = np.searchsorted(starts, [node.start for node in nodes])
    _, first, section = np.unique(behind, return_index=True, return_inverse=True)
    where = outline(spans, headings)
    texts = [body[a:b] for a, b in zip(units.start.tolist(), units.end.tolist(), strict=True)]
    return Prepared(
        units=units,
        headings=headings,
        where=where,
        section=section[units.owner],
        sections=units.first[first],
        above=_padded([where.above[node] for node in first], len(headings)),
        lead=_leads(nodes),
        words=index_words(texts),
        title_words=index_words(body[h.start : h.end] for h in headings),
        shape=_shape(nodes, units, texts, vectors),
        section_vectors=unit_means(vectors, section),
    )


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Integers:
    filled = np.full((len(rows), max(map(len, rows))), filler, dtype=np.int64)
    for at, row in enumerate(rows):
        filled[at, : len(row)] = row
    return np.ascontiguousarray(filled.T)


def unit_means(vectors: Vectors, groups: Integers) -> Vectors:
    """Return the normalised mean vector of each group, groups numbered from 0 without gaps."""
    sums = np.zeros((int(groups.max()) + 1, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, groups, vectors)
    means: Vectors = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return means


def _leads(nodes: Sequence[Node]) -> Integers:
    """Return the nearest earlier node whose text announces each node."""
    seen: dict[str, int] = {}
    found = np.full(len(nodes), -1, dtype=np.int64)
    for ordinal, node in enumerate(nodes):
        if node.lead_in is not None:
            found[ordinal] = seen.get(node.lead_in, -1)
        # Parse keeps no more than the end of a long lead-in.
        seen[node.text[-1000:]] = ordinal
    return found


def _shape(nodes: Sequence[Node], units: Units, texts: Sequence[str], vectors: Vectors) -> Floats:
    owner, parts = units.owner, np.diff(units.first)
    by_node = _shape_of_nodes(nodes, vectors) | {"in_parts": parts > 1}
    columns = {name: column[owner] for name, column in by_node.items()} | {
        "log_tokens": np.log1p(units.tokens),
        "marked_code": np.array(["`" in text for text in texts]),
        "bold": np.array(["**" in text for text in texts]),
        "number": np.array([any(map(str.isdigit, text)) for text in texts]),
        "part_position": (np.arange(len(owner)) - units.first[owner]) / parts[owner],
    }
    return np.stack([np.asarray(columns[name], dtype=np.float32) for name in SHAPE])


def _shape_of_nodes(nodes: Sequence[Node], vectors: Vectors) -> dict[str, npt.NDArray[Any]]:
    n = len(nodes)
    place, depth = np.arange(n), np.array([len(node.heading_path) for node in nodes])
    sizes = np.array([node.n_tokens for node in nodes], dtype=np.float64)
    return {
        **{flag: np.array([flag in (node.block, node.node_type) for node in nodes]) for flag in _FLAGS},
        "log_node_tokens": np.log1p(sizes),
        "position": place / max(n - 1, 1),
        "opening": place < _OPENING_NODES,
        "depth": depth,
        "about": np.array([bool(_ABOUT.search(" ".join(node.heading_path[-1:]))) for node in nodes]),
        "top": depth <= 1,
        "announces": np.array([node.text.endswith(":") for node in nodes]),
        "log_document": np.full(n, np.log1p(sizes.sum())),
        # Cosine to the mean of all nodes: what the whole document is about is typical of it.
        "typical": vectors @ unit_means(vectors, np.zeros(n, dtype=np.int64))[0],
    }
