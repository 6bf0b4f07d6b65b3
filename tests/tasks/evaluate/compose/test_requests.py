"""Requests as files hold them: what is known of each, categories of another set, wrong lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.evaluate.compose.requests import KnownRequest, read_categories, read_requests

STEP = {
    "description": "bake",
    "servers": ["Ann/Oven"],
    "also": ["bob/dough"],
    "categories": ["Baking", "Other"],
}
ROW: dict[str, Any] = {"query_id": "1", "query": "Bake bread.", "steps": [STEP], "edges": []}
FOREIGN = {**ROW, "steps": [{"step": 1, "category24": "food"}]}


def read(tmp_path: Path, *rows: Any, categories: dict[str, str] | None = None) -> list[KnownRequest]:  # noqa: ANN401
    path, mapping = tmp_path / "q.jsonl", tmp_path / "m.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    mapping.write_text(json.dumps(categories or {}), "utf-8")
    return read_requests(path, read_categories(mapping if categories else None))


def test_ids_are_in_lower_case_and_also_counts(tmp_path: Path) -> None:
    (found,) = read(tmp_path, {**ROW, "paraphrase": "Bread, please.", "tags": ["context"]})
    assert found.needed.steps[0].servers == {"ann/oven", "bob/dough"}
    assert found.main == ({"ann/oven"},)
    assert found.needed.steps[0].categories == {"Baking", "Other"}
    assert (found.tags, found.reworded().query) == (("context",), "Bread, please.")


def test_sections_are_mapped_and_what_is_not_mapped_does_not_count(tmp_path: Path) -> None:
    (found,) = read(tmp_path, ROW, categories={"Baking": "food"})
    assert found.needed.steps[0].categories == {"food"}


def test_a_request_may_know_its_categories_alone(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path, {k: v for k, v in FOREIGN.items() if k != "edges"}, categories={"Baking": "food"}
    )
    assert (found.descriptions, found.needed.edges, found.main) == (None, None, ())
    assert not found.needed.known_servers
    assert found.needed.known_categories


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no request"),
        ([ROW, ROW], "occurs twice"),
        ([{**ROW, "edges": [[1, 2]]}], "outside of 1 steps"),
        ([{**ROW, "edges": [[1]]}], "a step or an edge has another form"),
        ([{**ROW, "steps": ["bake"]}], "a step or an edge has another form"),
        ([{"query_id": "1", "query": "x"}], "steps"),
        ([{**ROW, "query": 5}], "`query` is missing or no text"),
        ([FOREIGN], "give --categories"),
    ],
    ids=["none", "twice", "edge beyond", "no pair", "no object", "no steps", "no text", "another set"],
)
def test_a_wrong_file_is_named(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(WrongInput, match=f"q.jsonl.*{said}"):
        read(tmp_path, *rows)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}'])
def test_a_wrong_file_of_categories_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text, "utf-8")
    with pytest.raises(WrongInput, match=r"--categories .*m\.json"):
        read_categories(tmp_path / "m.json")
