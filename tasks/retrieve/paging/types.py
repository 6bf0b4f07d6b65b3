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
from tasks.retrieve.paging.outline import Floats
from tasks.retrieve.paging.prepared import Ready


def node_vectors(document: PagedDocument, encoder: Encoder) -> Vectors:
    """Return the nodes' vectors, made where the document brings none.

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
    """A document ready for paging; what is None is worked out on the spot, for every page anew.

    Args:
        doc_id: The document's id.
        body: Its text.
        nodes: All its nodes, in order.
        vectors: The nodes' unit vectors, shape `(n, d)`.
        states: The nodes' packed states; with vectors, None means that there are none.
        n_tokens: Tokens of `body`.
        chunks: What the method `chunks` picks from.
        edges: What the methods that follow edges go along.
        ready: What the method `facets` works out once a document.
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


@dataclass(frozen=True, slots=True)
class Selection:
    """What a method ranked: units of a body, and which of them in which order.

    Args:
        spans: The unit's spans in the body, ordered and disjoint.
        tokens: Tokens of each unit.
        headings: The headings to put back over the units.
        ranked: `(ordinal of a unit, score)`, best first; an iterator is consumed no further than needed.
    """

    spans: Sequence[Span]
    tokens: Sequence[int]
    headings: Sequence[Heading]
    ranked: Iterable[Pick]


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a request.

    Args:
        context: What to read, in document order.
        nodes: The nodes that stand in `context`, in document order, each with its score.
        tokens: Tokens of `context`.
        document_tokens: Tokens of the body.
        over_budget: Not even the best node fits the budget; it is returned whole.
        method: The name of the method.
        budget: As it was given.
        printed: What stands in `context` of those nodes that stand there in part, by node_id.
        why: What each node's score is made of, by node_id; empty for methods with one measure alone.
        left_out: The nodes of which nothing is printed, best first, each with its score where it has one.
        reranked: Whether a language model had its say in the scores; None: none was to.
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


class Ranking(Protocol):
    """A way of ranking what to read of a document."""

    def __call__(
        self, document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
    ) -> Selection:
        """Rank a document's units for a query; `limited`: a token budget will cut the ranking off."""


class Reranker(Protocol):
    """Has a say in which nodes of a document a request needs."""

    def shifts(self, doc_id: str, nodes: Sequence[Node], query: str, scores: Floats) -> Floats | None:
        """Return what to add to each node's score, in log-odds, shape `(nodes,)`; None: it does not say."""
