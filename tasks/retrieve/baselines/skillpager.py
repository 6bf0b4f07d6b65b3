"""SkillPager's methods to page a skill (sections 3 to 5): its own, its baselines and its ablations.

Without a budget of tokens each stops by its own rule. With one, those rules are lifted and the ranking goes
on to the last unit, so that each method fills the same budget and their curves can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import WrongInput
from storage.schemas import EDGE_TYPES, Edge
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.parse.edges.rules import infer_edges
from tasks.parse.segment.headings import headings_between
from tasks.retrieve.paging.context import Pick
from tasks.retrieve.paging.terms import Floats
from tasks.retrieve.paging.types import PagedDocument, Selection, encode_chunks, node_vectors

Entry = Literal["nearest", "first"]
Printed = Literal["headings", "nodes"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a published method that picks nodes, without a budget of tokens.

    Args:
        weight: MMR's relevance weight; None: that of `OpenSettings`.
        k: The most nodes picked; None: by `OpenSettings.budget`.
        large: The nodes of a document above which more are picked; None: that of `OpenSettings`.
        concepts: `keep`, `only`, or `none` of the nodes typed as concepts.
        density: Concepts are left out if they are more than this share of the nodes.
        predecessors: Add to each node picked the nodes that edges come from.
        walk: Follow edges from an entry node instead of picking from all.
    """

    weight: float | None = None
    k: int | None = None
    large: int | None = None
    concepts: str = "keep"
    density: float = 1.0
    predecessors: bool = False
    walk: bool = False


class PaperNumbers(BaseModel):
    """The numbers of SkillPager's methods, and what its paper leaves open; the same for all of them.

    The numbers are of equations 2 to 4: MMR stops below `stop_below`, -1 never does; a walk ends when no
    neighbour's MMR value reaches `least_gain`. Chunks that overlap are printed whole. Raises `WrongInput` if
    a number or name is out of its range.
    """

    model_config = ConfigDict(frozen=True)

    relevance_weight: float = Field(0.7, description="MMR's weight of relevance, 0 to 1.")
    few: int = Field(20, ge=1, description="Nodes picked of a document that has few.")
    many: int = Field(60, ge=1, description="Nodes picked of one that has many.")
    large: int = Field(100, ge=0, description="Nodes of a document that are not many yet.")
    stop_below: float = Field(
        0.0, description="MMR ends early when the best value left is below this; -1: never."
    )
    entry: Entry = Field("nearest", description="The node where a walk along edges begins.")
    least_gain: float = Field(0.0, description="The gain that a walk's next node must reach.")
    top_k: int = Field(10, ge=1, description="Nodes before their predecessors are added.")
    edge_types: tuple[str, ...] = Field(EDGE_TYPES, description="Edges that are followed; JSON.")
    chunk_tokens: int = Field(256, ge=1, description="Tokens of a chunk.")
    chunk_overlap: int = Field(0, ge=0, description="Of them, shared with the next; less than half.")
    printed: Printed = Field("headings", description="nodes: a context is its nodes alone, as the paper's.")

    def budget(self, nodes: int, large: int | None = None) -> int:
        """Return how many nodes to pick of a document with so many (equation 4)."""
        return self.few if nodes <= (self.large if large is None else large) else self.many

    def model_post_init(self, _context: object, /) -> None:
        """Check what no single field tells."""
        if not 0 <= self.relevance_weight <= 1:
            raise WrongInput(f"SkillPager: relevance_weight {self.relevance_weight}: from 0 to 1")
        if 2 * self.chunk_overlap >= self.chunk_tokens:
            raise WrongInput(
                f"SkillPager: chunk_overlap {self.chunk_overlap}: less than half of chunk_tokens "
                f"{self.chunk_tokens}"
            )
        if unknown := set(self.edge_types) - set(EDGE_TYPES):
            raise WrongInput(
                f"SkillPager: edge_types {', '.join(sorted(unknown))}: choose some of {', '.join(EDGE_TYPES)}"
            )


class OpenSettings(PaperNumbers):
    """The numbers, and how nodes are made: `grouped` as section 3.1 has them (`segment`)."""

    grouped: bool = False


OPEN_SETTINGS = OpenSettings()
SKILLPAGER = Setting()


def settings_of(given: OpenSettings) -> dict[str, Setting]:
    """Return the setting of each of SkillPager's methods that pick nodes, by name."""
    return {
        "skillpager": SKILLPAGER,
        "mmr": SKILLPAGER,
        "greedy-graph": Setting(weight=1.0, walk=True),
        "top-k-dependency": Setting(weight=1.0, k=given.top_k, predecessors=True),
        "mmr-one-hop": replace(SKILLPAGER, predecessors=True),
        "concept-only": replace(SKILLPAGER, concepts="only"),
        "executable-only": replace(SKILLPAGER, concepts="none"),
        **{f"density-{share}": replace(SKILLPAGER, density=share) for share in (0.3, 0.4, 0.5)},
        **{f"weight-{weight}": replace(SKILLPAGER, weight=weight) for weight in (0.3, 0.5, 0.7, 0.9)},
        **{f"k-{k}": replace(SKILLPAGER, k=k) for k in (5, 10, 20, 30, 40, 60)},
        **{f"large-{nodes}": replace(SKILLPAGER, large=nodes) for nodes in (80, 120)},
    }


@dataclass(frozen=True, slots=True)
class NodeRanking:
    """Ranks nodes by a published setting; implements `Ranking`."""

    setting: Setting
    given: OpenSettings

    def __call__(
        self, document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
    ) -> Selection:
        """Return the nodes that the setting picks, in its order; `limited` lifts its rules to stop."""
        del tokenizer
        vectors = node_vectors(document, encoder)
        ranked: Iterable[Pick] = ()
        if len(vectors):
            relevance = vectors @ encoder.encode([query])[0]
            ranked = self._ranked(document, vectors, relevance, limited=limited)
        return of_nodes(document, ranked, apart=self.given.printed == "nodes")

    def _ranked(
        self, document: PagedDocument, vectors: Vectors, relevance: Floats, *, limited: bool
    ) -> Iterable[Pick]:
        setting, given = self.setting, self.given
        k = setting.k or given.budget(len(document.nodes), setting.large)
        weight = given.relevance_weight if setting.weight is None else setting.weight
        if setting.walk:
            walk = _walked(_edges(document, vectors, given), vectors, relevance, weight, given, limited)
            return walk if limited else islice(walk, k)
        pool = _pool(document, setting)
        stop = None if limited else given.stop_below
        picked = best_first(vectors[pool], relevance[pool], weight, stop)
        in_document = ((pool[place], score) for place, score in (picked if limited else islice(picked, k)))
        if not setting.predecessors:
            return in_document
        return _with_predecessors(in_document, _edges(document, vectors, given), relevance)


@dataclass(frozen=True, slots=True)
class ChunkRanking:
    """Ranks chunks by SkillPager's MMR, with its k by the document's nodes; implements `Ranking`."""

    given: OpenSettings

    def __call__(
        self, document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
    ) -> Selection:
        """Return the chunks in order of rank, without headings; `limited` lifts the rules to stop."""
        size, overlap = self.given.chunk_tokens, self.given.chunk_overlap
        chunks = document.chunks
        if chunks is None or (chunks.size, chunks.overlap) != (size, overlap):
            chunks = encode_chunks(
                document.body, encoder=encoder, tokenizer=tokenizer, size=size, overlap=overlap
            )
        ranked: Iterable[Pick] = ()
        if len(chunks.vectors):
            relevance = chunks.vectors @ encoder.encode([query])[0]
            stop = None if limited else self.given.stop_below
            ranked = best_first(chunks.vectors, relevance, self.given.relevance_weight, stop)
        k = None if limited else self.given.budget(len(document.nodes))
        return Selection(chunks.spans, chunks.tokens, (), islice(ranked, k), chunks=True, apart=overlap > 0)


def rank_whole(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """Return the whole body as one unit with the score 0."""
    del query, encoder, tokenizer, limited
    return Selection([(0, len(document.body))], [document.n_tokens or 0], (), [(0, 0.0)])


def rank_every_node(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool,
    apart: bool = False,
) -> Selection:  # fmt: skip
    """Return all nodes in document order with scores 0, which shows what parsing loses."""
    del query, encoder, tokenizer, limited
    return of_nodes(document, [(ordinal, 0.0) for ordinal in range(len(document.nodes))], apart=apart)


def of_nodes(document: PagedDocument, ranked: Iterable[Pick], *, apart: bool = False) -> Selection:
    """Return a ranking of a document's nodes as a selection; `apart`: printed without headings and marks."""
    spans = [(node.start, node.end) for node in document.nodes]
    tokens = [node.n_tokens for node in document.nodes]
    headings = () if apart else headings_between(document.body, spans)
    return Selection(spans, tokens, headings, ranked, apart=apart)


def best_first(
    vectors: Vectors, relevance: Floats, weight: float, stop_below: float | None
) -> Iterator[Pick]:
    """Rank by MMR; the best unit is kept even if its value is too low, so that no page is empty."""
    order = mmr_order(relevance, vectors, relevance_weight=weight, stop_below=stop_below)
    best = list(islice(order, 1)) or list(islice(mmr_order(relevance, vectors, stop_below=None), 1))
    return chain(best, order)


def _pool(document: PagedDocument, setting: Setting) -> list[int]:
    """Return the ordinals of the nodes that a setting picks from, all nodes if it would leave none."""
    every = range(len(document.nodes))
    concepts = [i for i in every if document.nodes[i].node_type == "concept"]
    if setting.concepts == "only":
        return concepts or list(every)
    if setting.concepts == "none" or len(concepts) > setting.density * len(every):
        return sorted(set(every) - set(concepts)) or list(every)
    return list(every)


def _edges(document: PagedDocument, vectors: Vectors, given: OpenSettings) -> list[tuple[int, int]]:
    edges: Sequence[Edge] = infer_edges(document.nodes, vectors) if document.edges is None else document.edges
    at = {node.node_id: node.ordinal for node in document.nodes}
    return [(at[e.src_id], at[e.dst_id]) for e in edges if e.edge_type in given.edge_types]


def _neighbours(pairs: Iterable[tuple[int, int]]) -> defaultdict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for node, other in pairs:
        found[node].append(other)
    return found


def _with_predecessors(
    picked: Iterable[Pick], edges: Sequence[tuple[int, int]], relevance: Floats
) -> Iterator[Pick]:
    seen: set[int] = set()
    sources = _neighbours((to, source) for source, to in edges)
    for node, score in picked:
        joined = [(source, float(relevance[source])) for source in sources[node]]
        for pick in [(node, score), *joined]:
            if pick[0] not in seen:
                seen.add(pick[0])
                yield pick


def _walked(
    edges: Sequence[tuple[int, int]], vectors: Vectors, relevance: Floats, weight: float,
    given: OpenSettings, limited: bool,
) -> Iterator[Pick]:  # fmt: skip
    """Yield nodes reached along edges, each time the neighbour with the highest MMR value.

    If `limited`, low gains do not end the walk, and where no edge leads on it enters anew.
    """
    after = _neighbours(edges)
    nearest = np.full(len(relevance), -np.inf)
    left = set(range(len(relevance)))
    frontier = {_entry(left, relevance, given)}
    while frontier:
        # Of equal gains the earliest node wins.
        node = max(sorted(frontier), key=lambda n: _gain(n, relevance, nearest, weight))
        gain = _gain(node, relevance, nearest, weight)
        begun = len(left) < len(relevance)
        if begun and not limited and gain < given.least_gain:
            return
        yield node, gain
        left.discard(node)
        nearest = np.maximum(nearest, vectors @ vectors[node])
        frontier = (frontier | set(after[node])) & left
        if not frontier and limited and left:
            frontier = {_entry(left, relevance, given)}


def _entry(left: Iterable[int], relevance: Floats, given: OpenSettings) -> int:
    ordered = sorted(left)
    return ordered[0] if given.entry == "first" else max(ordered, key=lambda n: float(relevance[n]))


def _gain(node: int, relevance: Floats, nearest: Floats, weight: float) -> float:
    redundancy = 0.0 if weight == 1 or not np.isfinite(nearest[node]) else float(nearest[node])
    return weight * float(relevance[node]) - (1 - weight) * redundancy


def mmr_order(
    relevance: Floats, vectors: Floats, *, relevance_weight: float = 0.7, stop_below: float | None = 0.0
) -> Iterator[tuple[int, float]]:
    """Pick items, each time the one with the highest marginal value given those picked before.

    The marginal value of item `n` is `w * relevance[n] - (1 - w) * max(vectors[s] @ vectors[n])` over the
    items `s` picked so far, and `w * relevance[n]` while there are none (SkillPager, equation 2). A step
    costs O(n * d). Ties go to the lower index. Yielded are `(index, marginal value)` of the items in turn.
    Raises `ValueError` if the shapes disagree, a number is not finite, or `relevance_weight` is out of range.
    `relevance`: similarity of each item to the query, shape `(n,)`. `vectors`: one unit vector for each item,
    shape `(n, d)`. `relevance_weight`: `w` in [0, 1]: 1 ranks by relevance alone; 0 only avoids what is
    picked already. It ends when the best marginal value left is below `stop_below` (equation 3); None never
    ends early.
    """
    if relevance.ndim != 1 or vectors.ndim != 2 or len(relevance) != len(vectors):
        msg = f"relevance must be (n,) and vectors (n, d), got {relevance.shape} and {vectors.shape}"
        raise ValueError(msg)
    if not 0 <= relevance_weight <= 1:
        raise ValueError(f"relevance_weight must be in [0, 1], got {relevance_weight}")
    if not (np.isfinite(relevance).all() and np.isfinite(vectors).all()):
        raise ValueError(f"relevance {relevance.shape} and vectors {vectors.shape} must be finite")
    return _mmr_steps(relevance, vectors, relevance_weight, stop_below)


def _mmr_steps(
    relevance: Floats, vectors: Floats, relevance_weight: float, stop_below: float | None
) -> Iterator[tuple[int, float]]:
    gain = relevance_weight * relevance
    value = gain
    redundancy = np.full_like(gain, -np.inf)
    for _ in range(len(gain)):
        best = int(np.argmax(value))
        if stop_below is not None and value[best] < stop_below:
            return
        yield best, float(value[best])
        gain[best] = -np.inf
        np.maximum(redundancy, vectors @ vectors[best], out=redundancy)
        value = gain - (1 - relevance_weight) * redundancy
