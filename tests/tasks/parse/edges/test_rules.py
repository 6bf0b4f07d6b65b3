from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import BLOCKS, EDGE_TYPES, NODE_TYPES, Node
from tasks.models.protocols import Vectors
from tasks.parse.edges.rules import FARTHEST_STEP, MOST_COMPARED, MOST_REFERENCES, MOST_SIMILAR, infer_edges
from tests.support.clock import is_linear, takes_less
from tests.support.texts.fragments import document, node


def pairs(nodes: list[Node], edge_type: str, vectors: Vectors | None = None) -> list[tuple[int, int]]:
    where = {n.node_id: n.ordinal for n in nodes}
    return [
        (where[e.src_id], where[e.dst_id]) for e in infer_edges(nodes, vectors) if e.edge_type == edge_type
    ]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, []), (3, [(0, 1), (1, 2)])])
def test_sequence_joins_neighbours(count: int, expected: list[tuple[int, int]]) -> None:
    assert pairs([node(k, "x") for k in range(count)], "sequence") == expected


def test_semantic_joins_pairs_above_the_threshold_from_the_earlier_to_the_later() -> None:
    angles = [0.0, 2.0, 0.5]
    vectors = np.array([[math.cos(a), math.sin(a)] for a in angles], dtype=np.float32)
    nodes = [node(k, "x") for k in range(3)]
    (edge,) = [e for e in infer_edges(nodes, vectors) if e.edge_type == "semantic"]
    assert (edge.src_id, edge.dst_id) == ("d#0", "d#2")
    assert edge.weight == pytest.approx(math.cos(0.5))
    assert not [e for e in infer_edges(nodes, vectors, semantic_threshold=0.9) if e.edge_type == "semantic"]


def test_semantic_edges_are_the_same_across_blocks_of_rows() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(1100, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nodes = [node(k, "x") for k in range(1100)]
    similar = np.triu(vectors @ vectors.T > 0.995, k=1)
    assert similar.sum(axis=1).max() < MOST_SIMILAR
    found = {
        (e.src_id, e.dst_id)
        for e in infer_edges(nodes, vectors, semantic_threshold=0.995)
        if e.edge_type == "semantic"
    }
    assert found == {(f"d#{i}", f"d#{j}") for i, j in np.argwhere(similar).tolist()}


def test_equal_nodes_do_not_make_edges_without_bound() -> None:
    nodes = [node(k, "x") for k in range(300)]
    vectors = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (300, 1))
    semantic = pairs(nodes, "semantic", vectors)
    assert [j for i, j in semantic if i == 0] == list(range(1, MOST_SIMILAR + 1))
    assert (298, 299) in semantic


@pytest.mark.parametrize("directions", [1, 4, 40])
def test_semantic_edges_are_those_that_pair_by_pair_comparison_finds(directions: int) -> None:
    random = np.random.default_rng(directions)
    vectors = random.normal(size=(directions, 3))[random.integers(directions, size=700)]
    vectors = vectors + random.normal(scale=0.05, size=vectors.shape)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    expected = []
    for i, cosines in enumerate(vectors @ vectors.T):
        later = [j for j in range(i + 1, len(vectors)) if cosines[j] > 0.85]
        closest = sorted(later, key=lambda j: -cosines[j])[:MOST_SIMILAR]
        expected += [(i, j) for j in sorted(closest)]
    assert pairs([node(k, "x") for k in range(700)], "semantic", vectors) == expected


STARTER = ("concept", "Feeding the starter", "It doubles in five hours.")
OVEN = ("concept", "Oven", "It holds its heat.")


@pytest.mark.parametrize(
    ("mention", "target"),
    [
        ("This comes after feeding the starter twice.", 0),
        ("See [the chapter](#feeding-the-starter).", 0),
        ("See **Feeding the Starter**.", 0),
        ('As in "Oven".', 1),
        ("Heat the oven.", None),
        ("Feeding the starters is fun.", None),
        ("Go back to Step 2.", 2),
        ("Go back to step 20.", None),
        ("It needs a long autolyse phase.", None),
        ("It needs a long **autolyse**.", 3),
        ("A banneton basket helps.", 4),
        ("Pass `--hydration` too.", 5),
        ("Pass `--hydrations` too.", None),
        ("The hydration matters.", None),
    ],
)
def test_reference_leads_from_a_mention_to_the_section_or_the_definition(
    mention: str, target: int | None
) -> None:
    nodes = document(
        STARTER,
        OVEN,
        ("step", "Step 2: Fold", "Fold every half hour."),
        ("concept", "Words", "**Autolyse**: flour and water rest", "list_item"),
        ("concept", "Words", "- **Banneton basket** - a form of cane", "list_item"),
        ("param", "Words", "`--hydration`: water over flour", "list_item"),
        ("concept", "Remarks", mention),
    )
    assert pairs(nodes, "reference") == ([] if target is None else [(6, target)])


def test_a_section_does_not_refer_to_itself_nor_to_the_title_of_the_whole() -> None:
    nodes = document(STARTER, ("step", "Feeding the starter/Rye", 'Feeding the starter: "Sourdough"'))
    assert pairs(nodes, "reference") == []


def test_a_name_that_several_nodes_bear_refers_to_none() -> None:
    twice = [
        ("error_handling", f"{case}/Slow rise", "**Likely reason**: a cold kitchen")
        for case in ("Rye", "Wheat")
    ]
    nodes = document(*twice, ("concept", "Remarks", "A slow rise has a **likely reason**."))
    assert pairs(nodes, "reference") == []


def test_code_refers_to_nothing() -> None:
    nodes = document(STARTER, ("example", "Log", "```\n# feeding the starter\n```", "code"))
    assert pairs(nodes, "reference") == []


def test_a_table_of_contents_has_a_bounded_number_of_references() -> None:
    titles = [f"Recipe for loaf {chr(97 + k)}" for k in range(20)]
    nodes = document(
        *[("concept", t, "Bake.") for t in titles], ("concept", "All", "; ".join(reversed(titles)))
    )
    assert pairs(nodes, "reference") == [(20, k) for k in range(20 - MOST_REFERENCES, 20)]


def test_references_take_time_in_proportion_to_the_text() -> None:
    nodes = document(*[("concept", f"Loaf number {k}", f"Unlike loaf number {k + 1}.") for k in range(4000)])
    assert len(pairs(nodes, "reference")) == 3999
    assert is_linear(lambda size: pairs(nodes[:size], "reference"), 1000)


@pytest.mark.parametrize("character", ["[", "`", "*", '"', "-", "a", " ", "_"])
def test_no_text_keeps_references_busy(character: str) -> None:
    nodes = document(STARTER, ("concept", "Remarks", character * 200_000), ("concept", character * 300, "x"))
    assert takes_less(5, lambda: infer_edges(nodes, None))


def test_condition_leads_to_the_next_step_of_the_section() -> None:
    nodes = document(
        ("step", "Mixing", "Mix."),
        ("precondition", "Baking", "The oven must be hot."),
        ("concept", "Baking", "Heat makes steam."),
        ("step", "Baking/Loading", "Slide the loaf in."),
        ("precondition", "Cooling", "Never cut it while it is warm."),
        ("step", "Serving", "Cut it."),
    )
    assert pairs(nodes, "condition") == [(1, 3)]


@pytest.mark.parametrize(
    "heading", ["Prerequisites", "When to use", "When to Use This Skill", "Requirements"]
)
def test_what_holds_for_the_whole_skill_constrains_the_first_step_after_it(heading: str) -> None:
    nodes = document(
        ("step", "At a glance", "Bake bread."),
        ("precondition", heading, "You need a scale."),
        ("step", "Mixing", "Mix."),
        ("step", "Mixing", "Rest."),
    )
    assert pairs(nodes, "condition") == [(1, 2)]
    assert pairs(nodes[:2], "condition") == [(1, 0)]


def test_what_stands_before_any_step_constrains_the_first() -> None:
    nodes = document(
        ("precondition", "Safety", "Do not touch the door."),
        ("concept", "Oven", "It is hot."),
        ("step", "Baking", "Open it."),
    )
    assert pairs(nodes, "condition") == [(0, 2)]


def test_no_cue_no_condition() -> None:
    nodes = document(("precondition", "Flour", "Strong wheat flour."), ("step", "Mixing", "Mix."))
    assert pairs(nodes, "condition") == []


@pytest.mark.parametrize(("gap", "expected"), [(FARTHEST_STEP - 1, 1), (FARTHEST_STEP, 0)])
def test_a_step_far_on_in_the_section_is_not_constrained(gap: int, expected: int) -> None:
    nodes = document(
        ("step", "Mixing", "Mix."),
        ("precondition", "Baking", "The oven must be hot."),
        *[("concept", "Baking", "Heat makes steam.")] * gap,
        ("step", "Baking", "Slide the loaf in."),
    )
    assert len(pairs(nodes, "condition")) == expected


WORDS = st.sampled_from(
    ["if", "Loaf proving", "**Loaf proving**:", "`--rye`", "`--rye`: flour", "must", "Step 1", "-"]
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[Node], Vectors]:
    size = draw(st.integers(0, 12))
    nodes = [
        node(
            k,
            " ".join(draw(st.lists(WORDS | st.text(max_size=5), max_size=4))),
            *draw(st.lists(st.sampled_from(["Loaf proving", "Step 1", "Prerequisites", "Rye"]), max_size=2)),
            kind=draw(st.sampled_from(NODE_TYPES)),
            block=draw(st.sampled_from(BLOCKS)),
        )
        for k in range(size)
    ]
    angles = np.array(draw(st.lists(st.floats(0, 3), min_size=size, max_size=size)))
    return nodes, np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@given(documents())
def test_edges_are_unique_weighed_and_without_loops_for_any_document(
    given: tuple[list[Node], Vectors],
) -> None:
    nodes, vectors = given
    edges = infer_edges(nodes, vectors)
    known = {n.node_id for n in nodes}
    kinds = {n.node_id: n.node_type for n in nodes}
    keys = [(EDGE_TYPES.index(e.edge_type), int(e.src_id[2:]), int(e.dst_id[2:])) for e in edges]
    assert keys == sorted(set(keys))
    assert all(e.src_id != e.dst_id and {e.src_id, e.dst_id} <= known for e in edges)
    assert all(0 < e.weight <= 1 for e in edges)
    assert all(
        source < target for kind, source, target in keys if EDGE_TYPES[kind] in ("sequence", "semantic")
    )
    conditions = [(kinds[e.src_id], kinds[e.dst_id]) for e in edges if e.edge_type == "condition"]
    assert set(conditions) <= {("precondition", "step")}
    assert [e for e in edges if e.edge_type != "semantic"] == infer_edges(nodes, None)


def test_nodes_of_two_documents_are_refused() -> None:
    other = Node(**{**{f: getattr(node(1, "x"), f) for f in Node.__slots__}, "doc_id": "e"})
    with pytest.raises(ValueError, match="nodes of 2 documents"):
        infer_edges([node(0, "x"), other], None)


def test_a_vector_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="2 nodes but 1 vectors"):
        infer_edges([node(0, "x"), node(1, "x")], np.ones((1, 2), dtype=np.float32))


def test_a_document_of_very_many_equal_items_takes_no_time_and_no_room() -> None:
    nodes = [node(k, "a") for k in range(MOST_COMPARED + 1)]
    vectors = np.tile(np.array([[1, 0, 0, 0]], dtype=np.float32), (len(nodes), 1))
    assert {edge.edge_type for edge in infer_edges(nodes, vectors)} == {"sequence"}
