"""The graph of a served document is the one that parse stored, wherever that is of the same nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest

from storage.schemas import EDGES, Edge, to_frame
from storage.state import edges_table, nodes_table, parsed_table
from tasks.parse.edges import infer_edges
from tasks.retrieve.baselines import skillpager
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.versions.publish import roll_back
from tests.support.hand_written import SKILLS
from tests.support.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
BEES = "local/market/bees"
MARK = Edge(f"{BEES}#2", f"{BEES}#0", "condition", 0.25)


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    made = skill_root(SKILLS)
    made.publish()
    return made


def of_bees(column: str) -> pl.Expr:
    return pl.col(column).str.starts_with(f"{BEES}#")


def mark(root: SkillRoot, to: str = MARK.dst_id) -> None:
    """Store one edge, which no rule infers, in place of those of the bees."""
    edges_table(root.root).replace([BEES], to_frame([replace(MARK, dst_id=to)], EDGES))


def edges(root: SkillRoot) -> list[Edge]:
    return list(graph_of(root.ask().document(BEES)).edges)


def inferred(root: SkillRoot) -> list[Edge]:
    document = root.ask().document(BEES)
    return infer_edges(document.nodes, document.vectors)


def test_the_graph_has_the_stored_edges(root: SkillRoot) -> None:
    assert edges(root) == inferred(root)

    mark(root)

    assert edges(root) == [MARK]


def page(root: SkillRoot, method: str) -> list[str]:
    found = root.ask().page(BEES, "what helps against mites", budget=None, method=method)
    return [node["node_id"] for node in found["nodes"]]


def test_a_page_that_walks_along_edges_walks_along_the_stored_ones(root: SkillRoot) -> None:
    before = page(root, "greedy-graph")

    mark(root)

    assert page(root, "greedy-graph") != before


@pytest.mark.parametrize("method", ["top-k-dependency", "mmr-one-hop", "greedy-graph"])
def test_no_page_infers_edges_that_are_stored(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    before = page(root, method)
    monkeypatch.setattr(skillpager, "infer_edges", Mock(side_effect=AssertionError))

    assert page(root, method) == before


def test_a_version_that_was_rolled_back_to_infers_its_edges(root: SkillRoot) -> None:
    before = edges(root)
    root.write("bees", SKILLS["bees"].replace("in October", "in September"))
    root.publish()
    mark(root)
    assert edges(root) == [MARK]

    roll_back(root.root)

    assert edges(root) == before != [MARK]


def test_a_version_that_was_rolled_back_to_keeps_the_stored_edges_of_what_did_not_change(
    root: SkillRoot,
) -> None:
    root.write("bread", SKILLS["bread"].replace("ten minutes", "an hour"))
    root.publish()
    mark(root)

    roll_back(root.root)

    assert edges(root) == [MARK]


@pytest.mark.parametrize("lost", ["edges", "nodes", "state/parsed"])
def test_where_a_table_is_lost_edges_are_inferred(root: SkillRoot, lost: str) -> None:
    mark(root)

    root.root.delete(lost)

    assert edges(root) == inferred(root) != [MARK]


def test_where_the_stored_edges_are_damaged_they_are_inferred(root: SkillRoot) -> None:
    before = edges(root)
    for file in root.root.files("edges"):
        Path(root.root.at(file)).write_bytes(b"PAR1 and no more")

    assert edges(root) == before


def test_while_a_document_is_parsed_again_its_edges_are_inferred(root: SkillRoot) -> None:
    mark(root)
    parsed = parsed_table(root.root)
    row = parsed.of(BEES).filter(doc_id=BEES).with_columns(digest=pl.lit(""))
    parsed.replace([BEES], row)

    assert edges(root) == inferred(root)


def test_edges_of_nodes_of_other_types_are_not_taken(root: SkillRoot) -> None:
    mark(root)
    nodes = nodes_table(root.root)
    rows = nodes.of(BEES).filter(of_bees("node_id")).with_columns(node_type=pl.lit("param"))
    nodes.replace([BEES], rows)

    assert edges(root) == inferred(root)


def test_edges_to_a_node_that_is_not_served_are_not_taken(root: SkillRoot) -> None:
    mark(root, to=f"{BEES}#99")

    assert edges(root) == inferred(root)


def test_an_index_without_nodes_infers_edges(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    mark(root)

    assert edges(root) == inferred(root)
