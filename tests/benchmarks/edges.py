"""Edges inferred for skills of 600 nodes, beside encoding those nodes; and how dense real graphs are.

Run by hand: `python tests/benchmarks/edges.py PARQUET [LIMIT]`; PARQUET has a column `content`. SkillPager
says in section 1 that the graphs of skills are sparse, so that walking them misses distant yet vital context.
"""
# ruff: noqa: T201

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from storage.schemas import EDGE_TYPES, Edge, Node
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.models.protocols import Vectors
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.document import parse_document
from tasks.parse.edges.rules import infer_edges
from tasks.parse.segment.segment import segment

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
NODES = 600
_LARGE, _TIMES = 8, 20
_FRONT_MATTER = re.compile(r"\A---\r?\n.*?^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)

Skill = tuple[list[Node], Vectors]


def parsed(bodies: Sequence[str], encoder: OnnxEncoder) -> list[Skill]:
    """Return each body's nodes and their vectors."""
    classifier = LocalClassifier()
    found = [parse_document("d", b, classifier=classifier, tokenizer=encoder) for b in bodies]
    vectors = encoder.encode([node.text for nodes in found for node in nodes])
    starts = [0, *itertools.accumulate(len(nodes) for nodes in found)]
    return [(nodes, vectors[a:b]) for nodes, (a, b) in zip(found, itertools.pairwise(starts), strict=True)]


def fastest(nodes: list[Node], vectors: Vectors | None) -> float:
    """Return the fewest processor seconds of several runs."""
    took = []
    for _ in range(_TIMES):
        start = time.process_time()
        infer_edges(nodes, vectors)
        took.append(time.process_time() - start)
    return min(took)


def large(texts: Sequence[str], encoder: OnnxEncoder) -> None:
    """Print what the edges of skills of 600 nodes take, beside their vectors."""
    print(f"{'nodes':>6} {'edges':>6} {'without semantic':>17} {'all':>9} {'vectors':>10} {'share':>6}")
    longest = sorted(texts, key=len, reverse=True)
    enough = (body for body in longest if len(segment(body).fragments) >= NODES)
    for body in itertools.islice(enough, _LARGE):
        nodes = parse_document("d", body, classifier=LocalClassifier(), tokenizer=encoder)[:NODES]
        start = time.process_time()
        vectors = encoder.encode([node.text for node in nodes])
        encoding = time.process_time() - start
        plain, every = fastest(nodes, None), fastest(nodes, vectors)
        edges = len(infer_edges(nodes, vectors))
        print(
            f"{len(nodes):6} {edges:6} {plain * 1000:14.1f} ms {every * 1000:6.1f} ms {encoding:8.2f} s "
            f"{every / encoding:6.2%}"
        )


def pieces(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[int, int]:
    """Return how many nodes have no edge but those of the order, and into how many parts the graph falls."""
    place = {node.node_id: i for i, node in enumerate(nodes)}
    joined = [(place[e.src_id], place[e.dst_id]) for e in edges if e.edge_type != "sequence"]
    rows, columns = np.array(joined, dtype=np.intp).reshape(-1, 2).T
    matrix = coo_array((np.ones(len(joined)), (rows, columns)), shape=(len(nodes), len(nodes)))
    parts = int(connected_components(matrix, directed=False)[0])
    return len(nodes) - len({*rows.tolist(), *columns.tolist()}), parts


def density(skills: Sequence[Skill]) -> None:
    """Print how many edges there are of each type, and what of a skill hangs together without its order."""
    counts: Counter[str] = Counter()
    pairs = nodes_seen = alone = components = 0
    for nodes, vectors in skills:
        edges = infer_edges(nodes, vectors)
        counts.update(edge.edge_type for edge in edges)
        lonely, parts = pieces(nodes, edges)
        nodes_seen += len(nodes)
        pairs += len(nodes) * (len(nodes) - 1)
        alone += lonely
        components += parts
    print(f"\n{len(skills)} skills, {nodes_seen} nodes")
    for edge_type in EDGE_TYPES:
        print(
            f"{edge_type:>10}: {counts[edge_type]:6} edges, {counts[edge_type] / nodes_seen:.3f} a node, "
            f"{counts[edge_type] / pairs:.4%} of ordered pairs"
        )
    print(f"all types: {sum(counts.values()) / pairs:.3%} of ordered pairs")
    print(
        f"without sequence: {alone / nodes_seen:.1%} of nodes have no edge, "
        f"{components / nodes_seen:.2f} components a node"
    )


def main() -> None:
    """Print both tables."""
    frame = pl.read_parquet(sys.argv[1], columns=["content"])
    texts = [_FRONT_MATTER.sub("", text, count=1) for text in frame["content"].to_list()]
    few = pl.Series(texts).sample(int(sys.argv[2]) if len(sys.argv) > 2 else 100, seed=0).to_list()
    with tempfile.TemporaryDirectory() as models:
        encoder = OnnxEncoder(exported_encoder(Path(models), MINILM), threads=1)
        large(texts, encoder)
        density(parsed(few, encoder))


if __name__ == "__main__":
    main()
