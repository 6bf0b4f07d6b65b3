"""The types that paging takes and returns: a prepared document or its chunks, a selection, a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

import numpy as np

from storage.schemas import Edge, Node
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.parse.segment.headings import Heading
from tasks.retrieve.paging.context import GAP_MARK, Pick, Span
from tasks.retrieve.paging.late_interaction import TokenStates, states_of
from tasks.retrieve.paging.prepared import Prepared, prepare_pages
from tasks.retrieve.paging.render import Pieces, pieces_of
from tasks.retrieve.paging.selection import Costs
from tasks.retrieve.paging.terms import Floats


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a body: ordered spans, their vectors of shape `(n, d)`, and their tokens.

    `size` and `overlap` are the tokens that a chunk has, and shares with the next one.
    """

    spans: list[tuple[int, int]]
    vectors: Vectors
    tokens: list[int]
    size: int = 256
    overlap: int = 0


def chunk_spans(body: str, tokenizer: Tokenizer, size: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Return the character spans of consecutive chunks of `size` tokens; the last has the rest.

    Each but the first begins with the last `overlap` tokens of the one before it: less than half of `size`,
    so that of three chunks the outer two share nothing.
    """
    offsets = tokenizer.offsets(body)
    spans: list[tuple[int, int]] = []
    for first in range(0, max(len(offsets) - overlap, min(len(offsets), 1)), size - overlap):
        piece = offsets[first : first + size]
        # A character of several tokens may straddle two chunks: without overlap it stays with the first.
        start = max(piece[0][0], spans[-1][1]) if spans and not overlap else piece[0][0]
        if piece[-1][1] > (spans[-1][1] if spans else start):
            spans.append((start, piece[-1][1]))
    return spans


def encode_chunks(
    body: str, *, encoder: Encoder, tokenizer: Tokenizer, size: int = 256, overlap: int = 0
) -> Chunks:
    """Cut a body into chunks, with arguments as of `chunk_spans`, and encode each."""
    spans = chunk_spans(body, tokenizer, size, overlap)
    texts = [body[start:end] for start, end in spans]
    return Chunks(spans, encoder.encode(texts), tokenizer.count(texts), size, overlap)


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared document: units and sections, the nodes' vectors, printable pieces and their tokens.

    `additive` tells whether a text's tokens are the sum of those of its pieces, as for tokenizers that split
    words at white space; then a printed text need not be counted again.
    """

    prepared: Prepared
    vectors: Vectors
    states: TokenStates
    pieces: Pieces
    costs: Costs
    additive: bool


def make_ready(
    body: str, nodes: Sequence[Node], vectors: Vectors, states: Sequence[bytes], tokenizer: Tokenizer
) -> Ready:
    """Prepare a document with at least one node for paging; every request can use the result.

    Raises `ValueError` if a node's states are no whole number of them.
    """
    prepared = prepare_pages(body, nodes, vectors)
    pieces = pieces_of(body, nodes, prepared)
    frames = ["\n".join(frame) for frame in pieces.frames]
    parts = [pieces.texts, pieces.titles, frames, [GAP_MARK]]
    every = [text for part in parts for text in part]
    # All texts as one, joined by whatever may stand between them.
    whole = "".join(map("".join, zip(every, cycle((" ", "\n", "\n\n")), strict=False)))
    *counted, together = tokenizer.count([*every, whole])
    units, headings, around, mark = np.split(np.array(counted), np.cumsum([len(part) for part in parts])[:-1])
    costs = Costs(units, headings, around, int(mark[0]))
    of_units = states_of(nodes, prepared.units, vectors, states, tokenizer)
    return Ready(prepared, vectors, of_units, pieces, costs, together == sum(counted))


def tokens_of(ready: Ready, chosen: Sequence[int], marks: int) -> int:
    """Return the tokens of units printed with their headings and frames, and of `marks` gap marks."""
    prepared, costs = ready.prepared, ready.costs
    units = np.array(chosen, dtype=np.int64)
    headings = np.flatnonzero(np.bincount(prepared.above[:, prepared.section[units]].ravel()))
    owners = np.flatnonzero(np.bincount(prepared.units.owner[units]))
    found = costs.units[units].sum() + costs.frames[owners].sum()
    return int(found + costs.headings[headings[headings < len(costs.headings)]].sum()) + marks * costs.mark


def node_vectors(document: PagedDocument, encoder: Encoder) -> Vectors:
    """Return the nodes' vectors, computed if the document has none.

    Raises `ValueError` if their shape does not fit the nodes.
    """
    vectors = document.vectors
    if vectors is None:
        vectors = encoder.encode([node.text for node in document.nodes])
    if len(vectors) != len(document.nodes):
        msg = f"{document.doc_id}: {len(document.nodes)} nodes but vectors of shape {vectors.shape}"
        raise ValueError(msg)
    return vectors


@dataclass(frozen=True, slots=True)
class PagedDocument:
    """A document for paging; a field that is None is computed for every page.

    Args:
        vectors: The nodes' unit vectors, shape `(n, d)`.
        states: The nodes' packed token embeddings; None beside vectors means that there are none.
        n_tokens: Tokens of `body`.
        ready: The prepared form of the method `facets`.
        by_words: Whether word vectors stand for those of an encoder, which would take too long.
    """

    doc_id: str
    body: str
    nodes: Sequence[Node]
    vectors: Vectors | None = None
    n_tokens: int | None = None
    chunks: Chunks | None = None
    edges: Sequence[Edge] | None = None
    ready: Ready | None = None
    states: Sequence[bytes] | None = None
    by_words: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The units of a body with ordered spans; `headings` are to be restored above them.

    `ranked` has `(ordinal of a unit, score)`, best first; an iterator is consumed no further than needed.
    `chunks` says that the units are chunks, not nodes. Units `apart` are printed whole, each by itself,
    without headings and marks; neighbours may overlap then, and are disjoint otherwise.
    """

    spans: Sequence[Span]
    tokens: Sequence[int]
    headings: Sequence[Heading]
    ranked: Iterable[Pick]
    chunks: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a request.

    Args:
        context: The text to read, in document order.
        nodes: The nodes in `context`, in document order, each with its score.
        tokens: Tokens of `context`.
        over_budget: Whether not even the best node fits the budget; it is returned whole.
        printed: The printed text of nodes that are not printed whole, by node_id.
        why: The parts of each node's score, by node_id; empty for methods with a single measure.
        left_out: The nodes that are not printed, best first, each with its score if it has one.
        reranked: Whether an LLM's answer changed the scores; None if none was asked.
        chunks: The number of chunks in `context`; None for methods that pick nodes.
    """

    context: str
    nodes: list[tuple[Node, float]]
    tokens: int
    document_tokens: int
    over_budget: bool
    method: str
    budget: float | None
    printed: Mapping[str, str] = field(default_factory=dict)
    why: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: Sequence[tuple[Node, float | None]] = ()
    reranked: bool | None = None
    chunks: int | None = None

    @property
    def units(self) -> int:
        """The number of units in the context, of the kind that the method picks: nodes or chunks."""
        return len(self.nodes) if self.chunks is None else self.chunks


class Ranking(Protocol):
    """A way of ranking what to read of a document."""

    def __call__(
        self, document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
    ) -> Selection:
        """Rank a document's units for a query; `limited` says that a token budget will cut it off."""


class Reranker(Protocol):
    """Judges which nodes of a document a request needs."""

    def shifts(self, doc_id: str, nodes: Sequence[Node], query: str, scores: Floats) -> Floats | None:
        """Return what to add to each node's score, in log-odds, shape `(nodes,)`; None without an answer."""
