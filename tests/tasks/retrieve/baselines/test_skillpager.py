from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.schemas import Edge
from tasks.retrieve.baselines.skillpager import OPEN_SETTINGS, Floats, OpenSettings, mmr_order
from tasks.retrieve.page import page
from tasks.retrieve.paging.types import Page, PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import nodes_of

BODY = "# Boat\n\nrow the boat\n\nrow the small boat\n\npaint oars\n\nmoor at the pier\n"
NODES = nodes_of(BODY)


def asked(
    method: str, document: PagedDocument, given: OpenSettings = OPEN_SETTINGS, budget: float | None = None,
    query: str = "row the boat",
) -> Page:  # fmt: skip
    encoder, tokenizer = WordEncoder(), WordTokenizer()
    return page(
        document, query, encoder=encoder, tokenizer=tokenizer, method=method, budget=budget,
        skillpager=given,
    )  # fmt: skip


def ordinals(method: str, document: PagedDocument, given: OpenSettings = OPEN_SETTINGS) -> list[int]:
    return [node.ordinal for node, _ in asked(method, document, given).nodes]


def screws(count: int) -> str:
    return "\n\n".join(f"turn screw number{n} left{n} until{n} tight{n}" for n in range(count))


def boat(*types: str, edges: list[tuple[int, int]] | None = None) -> PagedDocument:
    nodes = [replace(node, node_type=t) for node, t in zip(NODES, types or ("step",) * 4, strict=True)]
    joined = [Edge(f"soup#{a}", f"soup#{b}", "sequence", 1.0) for a, b in edges or []]
    return PagedDocument("soup", BODY, nodes, edges=joined)


def test_the_ablations_pick_from_concepts_alone_from_all_else_or_from_all_that_are_not_too_dense() -> None:
    # The ablations pick from concepts alone or from all else.
    document = boat("concept", "step", "concept", "param")
    assert set(ordinals("concept-only", document)) <= {0, 2}
    assert set(ordinals("executable-only", document)) <= {1, 3}
    # Concepts go where they are too dense.
    document = boat("concept", "concept", "step", "step")
    assert 0 not in ordinals("density-0.3", document)
    assert 0 in ordinals("density-0.5", document)


def test_edges_are_walked_and_lead_to_predecessors() -> None:
    # A walk reaches what edges lead to and nothing else.
    assert ordinals("greedy-graph", boat(edges=[(0, 1), (2, 3)])) == [0, 1]
    # Predecessors join what is picked.
    document = replace(
        boat(edges=[(3, 0)]),
        vectors=np.eye(4, 512, dtype=np.float32) * 0 + WordEncoder().encode(["row the boat"]),
    )
    assert 3 in ordinals("mmr-one-hop", document)
    # Edges of other types are not followed.
    boats = boat(edges=[(0, 1)])
    assert len(asked("greedy-graph", boats, OpenSettings(edge_types=("reference",))).nodes) == 1


def test_k_is_the_most_that_is_picked_and_is_by_the_nodes_of_the_document() -> None:
    # K is the most that is picked.
    lines = screws(30)
    document = PagedDocument("soup", lines, nodes_of(lines))
    assert [len(asked(f"k-{k}", document, query="turn screw").nodes) for k in (5, 10, 20)] == [5, 10, 20]
    # K is by the nodes of the document not by what may be picked.
    lines = screws(101)
    types = ["concept"] * 61 + ["step"] * 40
    nodes = [replace(node, node_type=t) for node, t in zip(nodes_of(lines), types, strict=True)]
    document = PagedDocument("soup", lines, nodes)
    # Equation 4 counts |V(D)|, here 101; of the 40 nodes that are no concepts it would give 20.
    assert len(asked("executable-only", document, query="turn screw").nodes) == 40
    assert len(asked("concept-only", document, query="turn screw").nodes) == 60
    # K of chunks is by the nodes too.
    lines = screws(101)
    document = PagedDocument("soup", lines, nodes_of(lines))
    found = asked("chunks", document, given=OpenSettings(chunk_tokens=15, stop_below=-1))
    assert (found.chunks, found.units) == (41, 41)  # of 606 words; 20 if the chunks were counted
    assert len(found.nodes) == 101


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
    assert ordinals("greedy-graph", boats) == [0, 1, 3]
    assert ordinals("greedy-graph", boats, OpenSettings(least_gain=0.5)) == [0, 1]
    turned = replace(boats, body=boats.body, edges=[Edge("soup#2", "soup#3", "sequence", 1.0)])
    assert ordinals("greedy-graph", turned) == [0]
    first = OpenSettings(entry="first")
    assert ordinals("greedy-graph", oars_first(), first) == [0]
    assert ordinals("greedy-graph", oars_first()) == [1]


def oars_first() -> PagedDocument:
    body = "paint oars\n\nrow the boat\n"
    return PagedDocument("soup", body, nodes_of(body), edges=[])


def test_chunks_share_tokens_where_that_is_set() -> None:
    body = " ".join(f"word{n}" for n in range(10))
    document = PagedDocument("soup", body, nodes_of(body))
    given = OpenSettings(chunk_tokens=4, chunk_overlap=1, stop_below=-1)
    found = asked("chunks", document, given)
    # 0 to 3, 3 to 6, 6 to 9: each is printed whole, so that what two share costs twice.
    parts = [" ".join(f"word{n}" for n in range(first, first + 4)) for first in (0, 3, 6)]
    assert (found.chunks, found.context, found.tokens) == (3, "\n\n".join(parts), 12)
    full = asked("chunks", document, given, budget=9)
    assert (full.chunks, full.tokens) == (2, 8)
    assert set(full.context.split("\n\n")) < set(parts)


def test_a_context_is_its_nodes_alone_where_that_is_set() -> None:
    body = "# Boats\n\nrow the boat\n\n## Land\n\nwalk home\n\nrow the boat north"
    document, given = PagedDocument("soup", body, nodes_of(body)), OpenSettings(printed="nodes")
    rows = [n.text for n in document.nodes if "row" in n.text]
    assert [n.text for n, _ in asked("skillpager", document, given, budget=7).nodes] == rows
    assert asked("skillpager", document, given, budget=7).context == "\n\n".join(rows)
    every = asked("nodes", document, given)
    assert every.context == "\n\n".join(n.text for n in document.nodes)
    assert len(every.nodes) == len(document.nodes)


@pytest.mark.parametrize(("method", "picked"), [("large-80", 60), ("skillpager", 20), ("large-120", 20)])
def test_the_size_at_which_a_document_is_large_can_differ(method: str, picked: int) -> None:
    lines = screws(90)
    document = PagedDocument("soup", lines, nodes_of(lines))
    assert len(asked(method, document, OpenSettings(stop_below=-1)).nodes) == picked


@pytest.mark.parametrize(
    "wrong", [{"chunk_overlap": 128}, {"relevance_weight": 1.1}, {"edge_types": ("friend",)}]
)
def test_settings_out_of_their_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongInput, match="SkillPager: "):
        OpenSettings(**wrong)


# Eighths keep every product and sum exact, so that ties are ties in any order of computation.
EIGHTHS = st.integers(-8, 8).map(lambda n: n / 8)
WEIGHTS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
STOPS = st.sampled_from([None, 0.0, -0.25])


def mmr(relevance: Floats, vectors: Floats, *, k: int, **how: Any) -> list[tuple[int, float]]:  # noqa: ANN401
    return list(islice(mmr_order(relevance, vectors, **how), k))


def plain_mmr(
    relevance: list[float], vectors: list[list[float]], k: int, weight: float, stop_below: float | None
) -> list[tuple[int, float]]:
    """Equations 2 and 3 word for word: every similarity anew at every step."""
    picked: list[tuple[int, float]] = []
    while len(picked) < min(k, len(relevance)):
        values = {}
        for n in range(len(relevance)):
            if n not in [s for s, _ in picked]:
                similar = [sum(a * b for a, b in zip(vectors[s], vectors[n], strict=True)) for s, _ in picked]
                values[n] = weight * relevance[n] - (1 - weight) * max(similar, default=0.0)
        best = min(values, key=lambda n: (-values[n], n))
        if stop_below is not None and values[best] < stop_below:
            break
        picked.append((best, values[best]))
    return picked


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[list[float]]]:
    n, d = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    relevance = draw(st.lists(EIGHTHS, min_size=n, max_size=n))
    return relevance, draw(
        st.lists(st.lists(EIGHTHS, min_size=d, max_size=d), min_size=n, max_size=n),
    )


@given(problems(), st.integers(0, 15), WEIGHTS, STOPS)
def test_equals_the_plain_quadratic_reference(
    problem: tuple[list[float], list[list[float]]], k: int, weight: float, stop_below: float | None
) -> None:
    relevance, vectors = problem
    shaped = np.array(vectors, dtype=np.float64).reshape(len(vectors), len(vectors[0]) if vectors else 1)
    picked = mmr(np.array(relevance), shaped, k=k, relevance_weight=weight, stop_below=stop_below)
    assert plain_mmr(relevance, vectors, k, weight, stop_below) == picked


@pytest.mark.parametrize(
    ("relevance", "vectors", "message"),
    [
        (np.zeros(3), np.zeros((2, 4)), r"\(3,\) and \(2, 4\)"),
        (np.zeros((3, 1)), np.zeros((3, 4)), r"\(3, 1\)"),
        (np.zeros(3), np.zeros(3), r"\(3,\) and \(3,\)"),
        (np.array([np.nan]), np.zeros((1, 2)), "finite"),
        (np.zeros(1), np.full((1, 2), np.inf), "finite"),
    ],
)
def test_arrays_that_do_not_fit_are_named(relevance: np.ndarray, vectors: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mmr(relevance, vectors, k=1)
    for weight in (1.1, -0.1):
        with pytest.raises(ValueError, match=str(weight)):
            mmr(np.zeros(1), np.zeros((1, 2)), k=1, relevance_weight=weight)
