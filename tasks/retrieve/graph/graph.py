"""The graph of one skill: its typed nodes, the edges between them, and its density."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.schemas import EDGE_TYPES, NODE_TYPES, Edge, Node
from tasks.parse.edges.rules import infer_edges
from tasks.retrieve.paging.types import PagedDocument


@dataclass(frozen=True, slots=True)
class SkillGraph:
    """The nodes of a document, in order, and the edges between them."""

    doc_id: str
    nodes: Sequence[Node]
    edges: Sequence[Edge]

    def node_counts(self) -> dict[str, int]:
        """Return the number of nodes of each type, in the order of `NODE_TYPES`."""
        counts = Counter(node.node_type for node in self.nodes)
        return {node_type: counts[node_type] for node_type in NODE_TYPES}

    def edge_counts(self) -> dict[str, int]:
        """Return the number of edges of each type, in the order of `EDGE_TYPES`."""
        counts = Counter(edge.edge_type for edge in self.edges)
        return {edge_type: counts[edge_type] for edge_type in EDGE_TYPES}

    def density(self) -> float:
        """Return the share of the ordered pairs of nodes that an edge joins, 0 if there are no pairs."""
        pairs = len(self.nodes) * (len(self.nodes) - 1)
        return len({(edge.src_id, edge.dst_id) for edge in self.edges}) / pairs if pairs else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the graph as the command prints it."""
        nodes = ("node_id", "node_type", "block", "heading_path", "text", "confidence")
        edges = ("src_id", "dst_id", "edge_type", "weight")
        return {
            "doc_id": self.doc_id,
            "counts": {"nodes": self.node_counts(), "edges": self.edge_counts()},
            "density": self.density(),
            "nodes": [{name: getattr(node, name) for name in nodes} for node in self.nodes],
            "edges": [{name: getattr(edge, name) for name in edges} for edge in self.edges],
        }


def graph_of(document: PagedDocument) -> SkillGraph:
    """Return the graph of a document: its stored edges, or edges inferred from its nodes and vectors."""
    edges = document.edges
    if edges is None:
        edges = infer_edges(document.nodes, document.vectors)
    return SkillGraph(document.doc_id, document.nodes, list(edges))
