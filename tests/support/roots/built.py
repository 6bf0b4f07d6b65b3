"""What a build left, to be compared with another build of the same skills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from storage.lance.served import require_served
from storage.lance.tables import NODES, SKILLS
from storage.root import Root
from storage.state import edges_table
from tests.support.roots.vendor import connect, open_at

_SKILL = ["doc_id", "name", "description", "text", "content_hash", "licence", "risks"]
_NODE = ["node_id", "node_type", "heading_path", "lead_in", "block", "start", "end", "text", "n_tokens"]


@dataclass(frozen=True, slots=True)
class Built:
    """Rows that are served without their vectors, sorted by key; vectors by the same order; edges."""

    skills: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    skill_vectors: np.ndarray[Any, np.dtype[np.float32]]
    node_vectors: np.ndarray[Any, np.dtype[np.float32]]
    edges: list[tuple[str, str, str]]


def built_at(root: Root) -> Built:
    """Read what is served below a root."""
    served, db = require_served(root), connect(root)
    assert served.nodes is not None
    skills = open_at(db, SKILLS, served.skills).search().select([*_SKILL, "vector"]).to_arrow()
    nodes = open_at(db, NODES, served.nodes).search().select([*_NODE, "vector"]).to_arrow()
    skills, nodes = skills.sort_by("doc_id"), nodes.sort_by("node_id")
    edges = edges_table(root).read().select("src_id", "dst_id", "edge_type").sort(pl.all())
    return Built(
        skills=skills.select(_SKILL).to_pylist(),
        nodes=nodes.select(_NODE).to_pylist(),
        skill_vectors=np.array(skills.column("vector").to_pylist(), dtype=np.float32),
        node_vectors=np.array(nodes.column("vector").to_pylist(), dtype=np.float32),
        edges=list(edges.iter_rows()),
    )


def lowest_cosine(one: Built, other: Built) -> float:
    """Return the cosine of the two vectors of a row that are least alike; the rows must be the same."""
    assert one.skills == other.skills
    assert one.nodes == other.nodes
    assert one.edges == other.edges
    pairs = ((one.skill_vectors, other.skill_vectors), (one.node_vectors, other.node_vectors))
    return min(float((a * b).sum(axis=1).min()) for a, b in pairs)
