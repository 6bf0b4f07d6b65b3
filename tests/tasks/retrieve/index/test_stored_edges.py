from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from storage.schemas import EDGES, Edge, to_frame
from storage.state import edges_table, parsed_table
from tasks.parse.edges.rules import infer_edges
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.versions.publish import roll_back
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

BEES = "local/market/bees"


@pytest.fixture
def root(skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    made = skill_root(SKILLS)
    made.publish()
    return made


def leave_one(root: SkillRoot) -> Edge:
    """Store a single edge in place of those of the bees, with the count that says so."""
    document = root.ask().document(BEES)
    edge = Edge(document.nodes[-1].node_id, document.nodes[1].node_id, "condition", 0.5)
    edges_table(root.root).replace([BEES], to_frame([edge], EDGES))
    parsed = parsed_table(root.root).of_document(BEES)
    parsed_table(root.root).replace([BEES], parsed.with_columns(n_edges=pl.lit(1, pl.Int32)))
    return edge


def inferred(document: PagedDocument) -> list[Edge]:
    return infer_edges(document.nodes, document.vectors)


def test_the_graph_of_a_served_skill_is_the_stored_one(root: SkillRoot) -> None:
    document = root.ask().document(BEES)
    assert document.edges == inferred(document)

    edge = leave_one(root)

    assert graph_of(root.ask().document(BEES)).edges == [edge]


def test_a_page_by_edges_follows_the_stored_ones(root: SkillRoot) -> None:
    ask = BEES, "when to feed sugar syrup"
    before = root.ask().page(*ask, budget=None, method="top-k-dependency")

    leave_one(root)

    after = root.ask().page(*ask, budget=None, method="top-k-dependency")
    assert [n["node_id"] for n in after["nodes"]] != [n["node_id"] for n in before["nodes"]]
    facets = root.ask().page(*ask, budget=0.5, method="facets")
    assert facets["context"]


def test_a_version_that_is_gone_back_to_has_its_own_edges(root: SkillRoot) -> None:
    first = root.ask().document(BEES)
    root.write("bees", SKILLS["bees"] + "\nAs in the first section, look after the queen.\n")
    root.publish()
    assert len(root.ask().document(BEES).edges or ()) > len(first.edges or ())

    roll_back(root.root)

    again = root.ask().document(BEES)
    assert again.edges is None
    assert graph_of(again).edges == inferred(first)


@pytest.mark.parametrize("injury", [b"", b"no Parquet", None])
def test_edges_that_are_missing_or_damaged_are_inferred(root: SkillRoot, injury: bytes | None) -> None:
    document = root.ask().document(BEES)
    for name in root.root.files("edges", ".parquet"):
        file = Path(root.root.at(name))
        file.unlink() if injury is None else file.write_bytes(injury)

    found = root.ask().document(BEES)

    assert found.edges is None
    assert graph_of(found).edges == inferred(document)
