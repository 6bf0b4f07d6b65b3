"""The types that paging takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from storage.schemas import Edge, Node
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.parse.segment.headings import Heading
from tasks.retrieve.paging.chunks import Chunks
from tasks.retrieve.paging.context import Pick, Span
from tasks.retrieve.paging.prepared import Ready
from tasks.retrieve.paging.terms import Floats


def node_vectors(document: PagedDocument, encoder: Encoder) -> Vectors:
    """Return the nodes' vectors, computed if the document has none.

    Raises:
        ValueError: Their shape does not fit the nodes.
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
        nodes: All nodes, in order.
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
    `chunks` says that the units are chunks, not nodes. Neighbours share `overlap` tokens; the spans of all
    others are disjoint.
    """

    spans: Sequence[Span]
    tokens: Sequence[int]
    headings: Sequence[Heading]
    ranked: Iterable[Pick]
    chunks: bool = False
    overlap: int = 0


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
