"""Rules that infer the edges between the nodes of one document, as in SkillPager, section 3.1."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from storage.schemas import Edge, Node
from tasks.models.protocols import Vectors
from tasks.parse.edges.references import find_references

_Positions = npt.NDArray[np.intp]
# Rows of the similarity matrix that are computed at a time: 512 by 5,000 nodes take 10 MB.
_ROWS = 512
# Nodes of a document whose vectors are compared: pairs, and memory, grow with the square.
MOST_COMPARED = 5_000
# Later nodes a node. A document of thousands of equal lines would otherwise have millions of edges.
MOST_SIMILAR = 100
# Nodes. A step further on in its section follows from other text.
FARTHEST_STEP = 12
_DEPENDENCY = re.compile(
    r"\b(?:if|when|whenever|unless|until|once|after|before|prior|must|mustn't|only|requir\w+|need\w*"
    r"|ensure|make sure|assum\w+|depends?|prerequisites?|preconditions?|installed|available|access|never"
    r"|don't|do not|cannot|should|avoid|not|no|constraints?|trigger\w*)\b"
    r"|必须|禁止|不要|前提|需要|如果|必要|場合|때",
    re.IGNORECASE,
)
# Headings over what holds for the whole skill.
_WHOLE_SKILL = re.compile(
    r"\b(?:pre-?requisites?|pre-?conditions?|before (?:you )?(?:start\w*|begin\w*))\b"
    r"|前提|先决|触发|适用|何时"
    r"|^\W*(?:[\d.]+\s*)?(?:system |general )?requirements?\W*$|^\W*(?:triggers?|activation|trigger on)\W*$"
    r"|^\W*when (?:not )?to (?:use|apply|invoke|activate|trigger)(?: (?:this|it)\b.*)?\W*$"
    r"|^\W*use (?:this|when)\b|^\W*when (?:not|this skill)\b|^\W*(?:do not|don't) use\b",
    re.IGNORECASE,
)


Pair = tuple[int, int, str]  # places of source and destination, and the edge's type
InferredPair = tuple[int, int, str, str]  # a pair, and who inferred it
BY_RULES = "rules"


def infer_edges(
    nodes: Sequence[Node],
    vectors: Vectors | None,
    *,
    semantic_threshold: float = 0.85,
    pairs: Sequence[InferredPair] | None = None,
) -> list[Edge]:
    """Return the edges between the nodes of one document, by type, source and destination.

    `sequence` joins neighbours. `semantic` joins each node to at most 100 later nodes, the most similar ones
    whose cosine is above the threshold; its weight is the cosine. A document of over 5,000 nodes has none.
    `reference` joins a node to those that it mentions (see `find_references`), `condition` a precondition
    with a dependency cue to the step that it constrains; the weight is 1 except for `semantic`. No edge joins
    a node to itself, and no two edges have the same source, destination and type.

    Args:
        nodes: All nodes of one document, in document order.
        vectors: Their unit vectors, shape `(len(nodes), dimension)`; None makes no `semantic` edges.
        semantic_threshold: SkillPager's tau, in [0, 1).
        pairs: The references and conditions; None: those that the rules find.

    Raises:
        ValueError: The nodes are of several documents, or nodes and vectors differ in number.
    """
    documents = {node.doc_id for node in nodes}
    if len(documents) > 1:
        some = ", ".join(sorted(documents)[:3])
        msg = f"nodes of {len(documents)} documents ({some}, ...); pass one document at a time"
        raise ValueError(msg)
    if vectors is not None and len(vectors) != len(nodes):
        msg = f"{len(nodes)} nodes but {len(vectors)} vectors"
        raise ValueError(msg)
    ids = [node.node_id for node in nodes]
    edges = [Edge(*neighbours, "sequence", 1.0) for neighbours in pairwise(ids)]
    if vectors is not None and len(nodes) <= MOST_COMPARED:
        edges += [
            Edge(ids[i], ids[j], "semantic", weight)
            for i, j, weight in _similar_pairs(vectors, semantic_threshold)
        ]
    found = [(*pair, BY_RULES) for pair in text_pairs(nodes)] if pairs is None else pairs
    return edges + [Edge(ids[i], ids[j], edge_type, 1.0, by) for i, j, edge_type, by in found]


def text_pairs(nodes: Sequence[Node]) -> list[Pair]:
    """Return the references, then the conditions, that the rules find between one document's nodes."""
    references = [(i, j, "reference") for i, j in find_references(nodes)]
    return references + [(i, j, "condition") for i, j in _conditions(nodes)]


def _similar_pairs(vectors: Vectors, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Yield `(i, j, cosine)` with i < j and the cosine above the threshold."""
    for top in range(0, len(vectors), _ROWS):
        block = vectors[top : top + _ROWS] @ vectors[top:].T
        rows, columns = np.nonzero(np.triu(block > threshold, k=1))
        # Rounding makes the product of equal unit vectors slightly larger than 1.
        cosines = np.minimum(block[rows, columns], 1.0)
        if len(rows) and np.bincount(rows).max() > MOST_SIMILAR:
            kept = _closest(rows, columns, cosines)
            rows, columns, cosines = rows[kept], columns[kept], cosines[kept]
        yield from zip((rows + top).tolist(), (columns + top).tolist(), cosines.tolist(), strict=True)


def _closest(rows: _Positions, columns: _Positions, cosines: npt.NDArray[np.float32]) -> _Positions:
    """Return the places of each row's `MOST_SIMILAR` largest cosines, the earlier column where equal."""
    order = np.lexsort((columns, -cosines, rows))
    in_order = rows[order]
    ranks = np.arange(len(rows)) - np.searchsorted(in_order, in_order)
    return np.sort(order[ranks < MOST_SIMILAR])


def _conditions(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Yield `(precondition, step)` for each precondition that has a dependency cue.

    A precondition of the whole skill constrains the first step after it, or the document's first step if no
    step comes after it; any other the next step of its section or a subsection, at most 12 nodes on.
    """
    steps = [k for k, node in enumerate(nodes) if node.node_type == "step"]
    for position, node in enumerate(nodes):
        if not steps or node.node_type != "precondition" or not _depends(node):
            continue
        after = bisect(steps, position)
        step = steps[after % len(steps)]
        section = node.heading_path
        near = 0 < step - position <= FARTHEST_STEP and nodes[step].heading_path[: len(section)] == section
        # What stands before any step, or under a heading such as `When to use`, holds for the whole skill.
        if near or after == 0 or any(map(_WHOLE_SKILL.search, section[-2:])):
            yield position, step


def _depends(node: Node) -> bool:
    """Tell whether the text, its lead-in or its heading has a dependency cue."""
    return any(map(_DEPENDENCY.search, (node.text, node.lead_in or "", *node.heading_path[-1:])))
