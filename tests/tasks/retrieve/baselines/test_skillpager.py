from __future__ import annotations

from dataclasses import replace

import numpy as np

from storage.schemas import Edge
from tasks.retrieve.page import page
from tasks.retrieve.paging.types import PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_nodes import nodes_of

BODY = "# Boat\n\nrow the boat\n\nrow the small boat\n\npaint oars\n\nmoor at the pier\n"
NODES = nodes_of(BODY)


def paged(method: str, document: PagedDocument) -> list[int]:
    answer = page(document, "row the boat", encoder=WordEncoder(), tokenizer=WordTokenizer(), method=method)
    return [node.ordinal for node, _ in answer.nodes]


def boat(*types: str, edges: list[tuple[int, int]] | None = None) -> PagedDocument:
    nodes = [replace(node, node_type=t) for node, t in zip(NODES, types or ("step",) * 4, strict=True)]
    joined = [Edge(f"soup#{a}", f"soup#{b}", "sequence", 1.0) for a, b in edges or []]
    return PagedDocument("soup", BODY, nodes, edges=joined)


def test_the_ablations_pick_from_concepts_alone_or_from_all_else() -> None:
    document = boat("concept", "step", "concept", "param")

    assert set(paged("concept-only", document)) <= {0, 2}
    assert set(paged("executable-only", document)) <= {1, 3}


def test_concepts_go_where_they_are_too_dense() -> None:
    document = boat("concept", "concept", "step", "step")

    assert 0 not in paged("density-0.3", document)
    assert 0 in paged("density-0.5", document)


def test_a_walk_reaches_what_edges_lead_to_and_nothing_else() -> None:
    assert paged("greedy-graph", boat(edges=[(0, 1), (2, 3)])) == [0, 1]


def test_predecessors_join_what_is_picked() -> None:
    document = replace(
        boat(edges=[(3, 0)]),
        vectors=np.eye(4, 512, dtype=np.float32) * 0 + WordEncoder().encode(["row the boat"]),
    )

    assert 3 in paged("mmr-one-hop", document)


def test_k_is_the_most_that_is_picked() -> None:
    lines = "\n\n".join(f"turn screw number{n} left{n} until{n} tight{n}" for n in range(30))
    document = PagedDocument("soup", lines, nodes_of(lines))

    assert [len(paged_screws(f"k-{k}", document)) for k in (5, 10, 20)] == [5, 10, 20]


def paged_screws(method: str, document: PagedDocument) -> list[str]:
    answer = page(document, "turn screw", encoder=WordEncoder(), tokenizer=WordTokenizer(), method=method)
    return [node.text for node, _ in answer.nodes]
