"""SkillPager's methods to page a skill (sections 3 to 5): its own, its baselines and its ablations.

What the paper leaves open is a field of `Setting`, and reports print it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from storage.schemas import Edge
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.parse.edges import infer_edges
from tasks.parse.segment.headings import headings_between
from tasks.retrieve.baselines.mmr import mmr_order, node_budget
from tasks.retrieve.paging.chunks import encode_chunks
from tasks.retrieve.paging.context import Pick
from tasks.retrieve.paging.terms import Floats
from tasks.retrieve.paging.types import PagedDocument, Selection, node_vectors


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a published method that picks nodes.

    Args:
        weight: MMR's relevance weight.
        k: The most nodes picked; None for the paper's 20 up to 100 nodes, else 60.
        concepts: `keep`, `only`, or `none` of the nodes typed as concepts.
        density: Concepts are left out if they are more than this share of the nodes.
        predecessors: Add to each node picked the nodes that edges of `edge_types` come from.
        walk: Follow edges from an entry node instead of picking from all. The entry is the node most similar
            to the query; a neighbour's gain is its MMR value; the walk ends if none is 0 or more.
        edge_types: The edges to follow; the paper does not say which.
    """

    weight: float = 0.7
    k: int | None = None
    concepts: str = "keep"
    density: float = 1.0
    predecessors: bool = False
    walk: bool = False
    edge_types: tuple[str, ...] = ("sequence", "semantic", "reference", "condition")


SKILLPAGER = Setting()
_TOP = 10  # nodes picked before their predecessors are added; the paper calls it k without a number
SETTINGS: dict[str, Setting] = {
    "skillpager": SKILLPAGER,
    "mmr": SKILLPAGER,
    "greedy-graph": Setting(weight=1.0, walk=True),
    "top-k-dependency": Setting(weight=1.0, k=_TOP, predecessors=True),
    "mmr-one-hop": replace(SKILLPAGER, predecessors=True),
    "concept-only": replace(SKILLPAGER, concepts="only"),
    "executable-only": replace(SKILLPAGER, concepts="none"),
    **{f"density-{share}": replace(SKILLPAGER, density=share) for share in (0.3, 0.4, 0.5)},
    **{f"weight-{weight}": replace(SKILLPAGER, weight=weight) for weight in (0.3, 0.5, 0.7, 0.9)},
    **{f"k-{k}": replace(SKILLPAGER, k=k) for k in (5, 10, 20, 30, 40, 60)},
}


@dataclass(frozen=True, slots=True)
class NodeRanking:
    """Ranks nodes by a published setting; implements `Ranking`."""

    setting: Setting

    def __call__(
        self, document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
    ) -> Selection:
        """Return the nodes that the setting picks, in its order; `limited` lifts its limit on nodes."""
        del tokenizer
        vectors = node_vectors(document, encoder)
        if not len(vectors):
            return of_nodes(document, [])
        relevance = vectors @ encoder.encode([query])[0]
        return of_nodes(document, self._ranked(document, vectors, relevance, limited=limited))

    def _ranked(
        self, document: PagedDocument, vectors: Vectors, relevance: Floats, *, limited: bool
    ) -> Iterable[Pick]:
        setting, pool = self.setting, _pool(document, self.setting)
        k = None if limited else setting.k or node_budget(len(pool))
        if setting.walk:
            return islice(_walked(_edges(document, vectors, setting), vectors, relevance, setting.weight), k)
        picked = best_first(vectors[pool], relevance[pool], setting.weight, k)
        in_document = ((pool[place], score) for place, score in picked)
        if not setting.predecessors:
            return in_document
        return _with_predecessors(in_document, _edges(document, vectors, setting), relevance)


def rank_chunks(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """Rank chunks of 256 tokens by SkillPager's MMR; no headings are added to them."""
    chunks = document.chunks or encode_chunks(document.body, encoder=encoder, tokenizer=tokenizer)
    if not len(chunks.vectors):
        return Selection(chunks.spans, chunks.tokens, (), [])
    relevance = chunks.vectors @ encoder.encode([query])[0]
    k = None if limited else node_budget(len(chunks.spans))
    ranked = best_first(chunks.vectors, relevance, SKILLPAGER.weight, k)
    return Selection(chunks.spans, chunks.tokens, (), ranked)


def rank_whole(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """Return the whole body as one unit with the score 0."""
    del query, encoder, tokenizer, limited
    return Selection([(0, len(document.body))], [document.n_tokens or 0], (), [(0, 0.0)])


def rank_every_node(
    document: PagedDocument, query: str, *, encoder: Encoder, tokenizer: Tokenizer, limited: bool
) -> Selection:
    """Return all nodes in document order with scores 0, which shows what parsing loses."""
    del query, encoder, tokenizer, limited
    return of_nodes(document, [(ordinal, 0.0) for ordinal in range(len(document.nodes))])


def of_nodes(document: PagedDocument, ranked: Iterable[Pick]) -> Selection:
    """Return a ranking of a document's nodes as a selection."""
    spans = [(node.start, node.end) for node in document.nodes]
    tokens = [node.n_tokens for node in document.nodes]
    return Selection(spans, tokens, headings_between(document.body, spans), ranked)


def best_first(vectors: Vectors, relevance: Floats, weight: float, k: int | None) -> Iterator[Pick]:
    """Rank by MMR; the best unit is kept even if its similarity is negative, so that no page is empty."""
    order = mmr_order(relevance, vectors, relevance_weight=weight)
    best = list(islice(order, 1)) or list(islice(mmr_order(relevance, vectors, stop_below=None), 1))
    return chain(best, order if k is None else islice(order, k - 1))


def _pool(document: PagedDocument, setting: Setting) -> list[int]:
    """Return the ordinals of the nodes that a setting picks from, all nodes if it would leave none."""
    every = range(len(document.nodes))
    concepts = [i for i in every if document.nodes[i].node_type == "concept"]
    if setting.concepts == "only":
        return concepts or list(every)
    if setting.concepts == "none" or len(concepts) > setting.density * len(every):
        return sorted(set(every) - set(concepts)) or list(every)
    return list(every)


def _edges(document: PagedDocument, vectors: Vectors, setting: Setting) -> list[tuple[int, int]]:
    edges: Sequence[Edge] = infer_edges(document.nodes, vectors) if document.edges is None else document.edges
    at = {node.node_id: node.ordinal for node in document.nodes}
    return [(at[e.src_id], at[e.dst_id]) for e in edges if e.edge_type in setting.edge_types]


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
    edges: Sequence[tuple[int, int]], vectors: Vectors, relevance: Floats, weight: float
) -> Iterator[Pick]:
    """Yield nodes reached along edges, each time the neighbour with the highest MMR value."""
    after = _neighbours(edges)
    node, gain = int(np.argmax(relevance)), weight * float(relevance.max())
    nearest = np.full(len(relevance), -np.inf)
    reached: set[int] = set()
    frontier: set[int] = set()
    while True:
        yield node, gain
        reached.add(node)
        nearest = np.maximum(nearest, vectors @ vectors[node])
        frontier = (frontier | set(after[node])) - reached
        if not frontier:
            return
        gains = {n: weight * float(relevance[n]) - (1 - weight) * float(nearest[n]) for n in frontier}
        # Sorted, so that of equal gains the earliest node wins.
        node = max(sorted(gains), key=gains.__getitem__)
        gain = gains[node]
        if gain < 0:
            return
