from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from storage.errors import WrongInput
from storage.schemas import Edge
from tasks.retrieve.baselines.skillpager import OPEN_SETTINGS, OpenSettings
from tasks.retrieve.page import page
from tasks.retrieve.paging.types import Page, PagedDocument
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


def test_k_is_by_the_nodes_of_the_document_not_by_what_may_be_picked() -> None:
    lines = "\n\n".join(f"turn screw number{n} left{n} until{n} tight{n}" for n in range(101))
    types = ["concept"] * 61 + ["step"] * 40
    nodes = [replace(node, node_type=t) for node, t in zip(nodes_of(lines), types, strict=True)]
    document = PagedDocument("soup", lines, nodes)

    # Equation 4 counts |V(D)|, here 101; of the 40 nodes that are no concepts it would give 20.
    assert len(paged_screws("executable-only", document)) == 40
    assert len(paged_screws("concept-only", document)) == 60


def test_k_of_chunks_is_by_the_nodes_too() -> None:
    lines = "\n\n".join(f"turn screw number{n} left{n} until{n} tight{n}" for n in range(101))
    document = PagedDocument("soup", lines, nodes_of(lines))

    found = asked("chunks", document, given=OpenSettings(chunk_tokens=15, stop_below=-1))

    assert (found.chunks, found.units) == (41, 41)  # of 606 words; 20 if the chunks were counted
    assert len(found.nodes) == 101


def asked(
    method: str, document: PagedDocument, given: OpenSettings = OPEN_SETTINGS, budget: float | None = None
) -> Page:
    return page(
        document,
        "row the boat",
        encoder=WordEncoder(),
        tokenizer=WordTokenizer(),
        method=method,
        budget=budget,
        skillpager=given,
    )


@pytest.mark.parametrize(
    "method", ["skillpager", "chunks", "greedy-graph", "top-k-dependency", "mmr-one-hop"]
)
def test_at_a_budget_every_method_goes_on_until_it_is_full(method: str) -> None:
    # Sentences alike make the value of each further one negative, and no edge leads on.
    lines = "\n\n".join(f"moor at pier {n}" for n in range(30))
    document = PagedDocument("soup", lines, nodes_of(lines), edges=[])
    given = OpenSettings(chunk_tokens=4)

    alone, full = asked(method, document, given), asked(method, document, given, budget=0.5)

    assert full.tokens <= 60
    assert full.tokens > 45
    assert asked(method, document, given, budget=1.0).tokens == 120
    assert alone.tokens < 120


def test_early_stop_entry_and_gain_are_settings() -> None:
    boats = boat(edges=[(0, 1), (1, 3), (2, 3)])

    stopped = asked("skillpager", boats, OpenSettings(stop_below=0.5))
    assert len(stopped.nodes) == 1
    assert len(asked("skillpager", boats, OpenSettings(stop_below=-1)).nodes) == 4

    assert [n.ordinal for n, _ in asked("greedy-graph", boats).nodes] == [0, 1, 3]
    assert [n.ordinal for n, _ in asked("greedy-graph", boats, OpenSettings(least_gain=0.5)).nodes] == [0, 1]
    turned = replace(boats, body=boats.body, edges=[Edge("soup#2", "soup#3", "sequence", 1.0)])
    assert [n.ordinal for n, _ in asked("greedy-graph", turned).nodes] == [0]
    first = OpenSettings(entry="first")
    assert [n.ordinal for n, _ in asked("greedy-graph", oars_first(), first).nodes] == [0]
    assert [n.ordinal for n, _ in asked("greedy-graph", oars_first()).nodes] == [1]


def oars_first() -> PagedDocument:
    body = "paint oars\n\nrow the boat\n"
    return PagedDocument("soup", body, nodes_of(body), edges=[])


def test_edges_of_other_types_are_not_followed() -> None:
    boats = boat(edges=[(0, 1)])

    assert len(asked("greedy-graph", boats, OpenSettings(edge_types=("reference",))).nodes) == 1


def test_chunks_share_tokens_where_that_is_set() -> None:
    body = " ".join(f"word{n}" for n in range(10))
    document = PagedDocument("soup", body, nodes_of(body))

    given = OpenSettings(chunk_tokens=4, chunk_overlap=1, stop_below=-1)

    found = asked("chunks", document, given)
    assert (found.chunks, found.context) == (3, body)  # 0 to 3, 3 to 6, 6 to 9: nothing is printed twice
    # Neighbours that share a token cost less than each by itself.
    assert asked("chunks", document, given, budget=7).tokens == 7


@pytest.mark.parametrize(
    "wrong", [{"chunk_overlap": 128}, {"chunk_overlap": -1}, {"top_k": 0}, {"edge_types": ("friend",)}]
)
def test_settings_out_of_their_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongInput, match="SkillPager: "):
        OpenSettings(**wrong)
