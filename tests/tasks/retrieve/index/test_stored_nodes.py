from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from storage.errors import StorageError
from storage.lance.tables import TableAt
from storage.schemas import EDGES, Edge, to_frame
from storage.state import edges_table, parsed_table
from tasks.models.token_states import packing
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.document import parse_document
from tasks.parse.edges.rules import infer_edges
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.index.stored_nodes import indexed_nodes
from tasks.retrieve.page import page
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.versions.publish import roll_back
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import made_table

BODY = "# Hive\n\nLift the lid.\n\nCount the frames:\n\n- brood\n- honey\n"


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    encoder = WordEncoder()
    nodes = parse_document("bees", BODY, classifier=LocalClassifier(), tokenizer=WordTokenizer())
    vectors = encoder.encode([node.text for node in nodes])
    named = [{name: getattr(node, name) for name in node.__dataclass_fields__} for node in nodes]
    return [
        {**row, "heading_path": list(row["heading_path"]), "vector": vector.tolist()}
        for row, vector in zip(named, vectors, strict=True)
    ]


def table_of(folder: Path, rows: list[dict[str, Any]]) -> TableAt:
    texts = ("node_id", "doc_id", "node_type", "lead_in", "block", "text", "classifier")
    schema = pa.schema([
        *((name, pa.string()) for name in texts),
        *((name, pa.int64()) for name in ("ordinal", "start", "end", "n_tokens")),
        ("confidence", pa.float64()), ("heading_path", pa.list_(pa.string())),
        ("vector", pa.list_(pa.float32(), 512)),
    ])  # fmt: skip
    return made_table(folder, "nodes", pa.Table.from_pylist(rows, schema=schema))


def packed_as(packing: str, rows: list[dict[str, Any]], folder: Path) -> TableAt:
    """Return a table whose metadata say how its states are packed."""
    model = {b"model": json.dumps({"states": packing}).encode()}
    whole = table_of(folder, rows).rows().append_column("states", pa.array([b"s"] * len(rows)))
    return made_table(folder, "packed", whole.replace_schema_metadata(model))


def test_states_are_read_where_they_are_packed_as_now_and_else_there_are_none(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    # States are read where they are packed as now.
    *_, states = indexed_nodes(packed_as(packing(), rows, tmp_path / "now"), "bees")
    assert states == [b"s"] * len(rows)
    # States packed in another way and tables without any have none.
    for table in (packed_as("another", rows, tmp_path), table_of(tmp_path / "older", rows)):
        assert indexed_nodes(table, "bees")[2] is None


def asked(table: TableAt) -> str:
    nodes, vectors, _ = indexed_nodes(table, "bees")
    document = PagedDocument("bees", BODY, nodes, vectors, n_tokens=20)
    return page(document, "what to count", encoder=WordEncoder(), tokenizer=WordTokenizer()).context


def test_nodes_come_in_order_whatever_the_order_of_the_rows(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    nodes, vectors, _ = indexed_nodes(table_of(tmp_path, rows[::-1]), "bees")
    assert [node.ordinal for node in nodes] == list(range(len(rows)))
    assert [node.text for node in nodes] == [row["text"] for row in rows]
    np.testing.assert_array_equal(vectors, np.array([row["vector"] for row in rows], dtype=np.float32))
    assert "frames" in asked(table_of(tmp_path / "again", rows))


@pytest.mark.parametrize("column", ["vector", "text", "start", "node_type", "heading_path"])
def test_a_value_that_is_gone_is_a_damaged_index(
    tmp_path: Path, rows: list[dict[str, Any]], column: str
) -> None:
    rows[1][column] = None
    with pytest.raises(StorageError, match=f"bees: nodes have no {column}.*doctor"):
        asked(table_of(tmp_path, rows))


BEES = "local/market/bees"


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
