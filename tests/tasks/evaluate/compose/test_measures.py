"""Measures of plans, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.evaluate.compose.appendices import failures_section
from tasks.evaluate.compose.measures import Needed, NeededStep, Planned, PlannedStep, measured
from tasks.evaluate.compose.requests import KnownRequest, read_categories, read_requests
from tasks.evaluate.measures.tables import Table
from tasks.retrieve.compose.dependencies import closure

FAILURES = ("over", "under", "unfound", "misranked")


def needed(*servers: str, edges: tuple[tuple[int, int], ...] = ()) -> Needed:
    steps = tuple(NeededStep(frozenset({s}), frozenset({s[0]})) for s in servers)
    return Needed(steps, frozenset(edges))


def planned(*candidates: str, edges: tuple[tuple[int, int], ...] = ()) -> Planned:
    """Return a plan whose steps have candidates such as `a1 b1`; the category is the first letter."""
    steps = tuple(
        PlannedStep(tuple(c.split()), tuple(frozenset({s[0]}) for s in c.split())) for c in candidates
    )
    return Planned(steps, frozenset(edges))


def test_a_plan_that_is_all_right() -> None:
    found = measured(planned("a1 x1", "b1", edges=((0, 1),)), needed("a1", "b1", edges=((0, 1),)))
    assert {name for name, value in found.items() if value != 1} == {"steps", *FAILURES}
    assert found["steps"] == 2


def test_one_step_too_many_costs() -> None:
    found = measured(planned("a1", "x1", "b2 b1", edges=((0, 2),)), needed("a1", "b1", edges=((0, 1),)))
    assert (found["da"], found["da±1"]) == (0, 1)
    assert (found["srvr@1"], found["srvr@10"], found["catr@1"]) == (0.5, 1, 1)
    assert found["stepf1"] == pytest.approx(2 * 1 / 5)
    assert (found["edgef1"], found["graph"], found["plan"]) == (1, 0, 0)


WHY = [
    ("a1 x1, b1", []),
    ("a1, b1, b2", ["over"]),
    ("a1", ["under"]),
    ("a1, x1", ["unfound"]),
    ("a1, x1 b1", ["misranked"]),
    ("x1 a1, x2", ["unfound"]),
]


def test_shares_of_failures_are_told_where_all_reasons_are_known() -> None:
    rows = {
        "local": {"over": 0.1, "under": 0.1}, "none": dict.fromkeys(FAILURES, 0.0),
        "both": dict(zip(FAILURES, (0.1, 0.2, 0.0, 0.1), strict=True)),
    }  # fmt: skip
    _, drawn = failures_section({}, rows)
    assert isinstance(drawn, Table)
    assert drawn.cells() == [
        ["`local`", "", "", "", "", ""],
        ["`none`", "0.000", "", "", "", ""],
        ["`both`", "0.400", "0.250", "0.500", "0.000", "0.250"],
        ["paper: vanilla", "", "0.360", "0.140", "0.500", ""],
    ]


@pytest.mark.parametrize(("plan", "why"), WHY)
def test_why_a_plan_fails_is_one_thing(plan: str, why: list[str]) -> None:
    found = measured(planned(*plan.split(", ")), needed("a1", "b1"))
    assert [name for name in FAILURES if found[name]] == why


def test_pairs_are_chosen_for_the_most_hits_and_by_place_beside() -> None:
    found = measured(planned("b1", "a1"), needed("a1", "b1"))
    assert (found["srvr@1"], found["chain"], found["positional_srvr@1"]) == (1, 1, 0)


def test_edges_are_compared_with_all_that_follows_from_them() -> None:
    chain = ((0, 1), (1, 2))
    found = measured(planned("a1", "b1", "c1", edges=chain), needed("a1", "b1", "c1", edges=((0, 2), (1, 2))))
    assert closure(chain) == {(0, 1), (1, 2), (0, 2)}
    assert found["edgef1"] == pytest.approx(2 * 2 / 5)
    assert found["graph"] == 0
    assert measured(planned("a1"), needed("a1"))["edgef1"] == 1  # without edges on either side


def test_of_an_empty_plan_and_of_a_gap_nothing_is_chosen() -> None:
    found = measured(planned(), needed("a1"))
    assert (found["da"], found["da±1"], found["stepf1"], found["srvr@10"]) == (0, 1, 0, 0)
    plan = planned("a1", "b1")
    gap = Planned((plan.steps[0], replace(plan.steps[1], gap=True)))
    assert measured(plan, needed("a1", "b1"))["chain"] == 1
    assert measured(gap, needed("a1", "b1"))["chain"] == 0
    assert measured(gap, needed("a1", "b1"))["srvr@1"] == 1  # its first candidate is right all the same


def test_what_is_not_known_is_not_measured() -> None:
    steps = needed("a1", "b1").steps
    bare = tuple(NeededStep(None, step.categories) for step in steps)
    told = tuple(NeededStep(step.servers, frozenset()) for step in steps)
    always = {"steps", "da", "da±1", *FAILURES}
    categories = measured(planned("a1", "x1"), Needed(bare, None))
    servers = measured(planned("a1", "x1"), Needed(told, None))
    assert set(categories) == always | {"catr@1", "catr@10", "positional_catr@1", "chain_cat", "chain_share"}
    assert set(servers) == always | {"srvr@1", "srvr@10", "positional_srvr@1", "chain", "stepf1"}
    assert (categories["catr@1"], servers["srvr@1"]) == (0.5, 0.5)


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
