"""What is measured with rows hidden: confidence without what serves a step, and transfer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from storage.errors import WrongInput
from tasks.evaluate.compose.bench import run_method
from tasks.evaluate.compose.hidden_rows import (
    drawn_step,
    hidden_servers,
    left_out_share,
    most_needed,
    needing,
    require_servers,
    rows_by_id,
    transfer,
    without_categories,
    without_gold,
)
from tasks.evaluate.compose.methods import METHODS, Asking
from tasks.evaluate.compose.requests import CategorySet, KnownRequest


@pytest.fixture(scope="module")
def rows(asking: Asking) -> dict[str, frozenset[str]]:
    return rows_by_id(asking.index, CategorySet())


def test_the_drawn_step_depends_on_the_id_and_the_seed_alone(requests: list[KnownRequest]) -> None:
    many = [replace(requests[1], query_id=str(k)) for k in range(300)]
    assert [drawn_step(r, 42) for r in many] == [drawn_step(r, 42) for r in many]
    counts = Counter(drawn_step(r, 42) for r in many)
    assert set(counts) == {0, 1, 2}
    assert min(counts.values()) > 70
    assert [drawn_step(r, 42) for r in many] != [drawn_step(r, 43) for r in many]


def test_a_step_loses_all_that_serves_it(requests: list[KnownRequest]) -> None:
    found = {hidden_servers(replace(requests[1], query_id=str(k)), 42) for k in range(30)}
    assert found == {
        frozenset({"eve/prices"}), frozenset({"dan/grocer"}), frozenset({"fay/telegram", "gus/mail"}),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["gold-steps", "gold-dense", "local-r1"])
def test_confidence_falls_where_nothing_serves_a_step(
    asking: Asking, requests: list[KnownRequest], name: str
) -> None:
    run = run_method(asking, METHODS[name], requests)
    found = without_gold(asking, METHODS[name], run, 42)
    assert (found["requests"], found["steps"]) == (3, 2 if name == "local-r1" else 3)  # it cuts one too few
    assert found["auroc_served"] > (0.6 if name == "local-r1" else 0.8)
    assert found["right"] + found["wrong"] == sum(len(made.plan.steps) for made in run.made)


def test_requests_without_servers_are_named(requests: list[KnownRequest]) -> None:
    bare = [replace(step, servers=None) for step in requests[1].needed.steps]
    unknown = replace(requests[1], needed=replace(requests[1].needed, steps=tuple(bare)))
    with pytest.raises(WrongInput, match="--without-gold: query 'b'"):
        require_servers([requests[0], unknown], "--without-gold")


def test_a_category_is_taken_whatever_its_letter_case(
    rows: dict[str, frozenset[str]], requests: list[KnownRequest]
) -> None:
    taken = without_categories(rows, ["drinks", "Messages"])
    assert taken.ids == {"ann/kettle", "cat/coffee", "fay/telegram", "gus/mail"}
    assert [r.query_id for r in needing(requests, taken)] == ["a", "b", "c"]
    with pytest.raises(WrongInput, match=r"'Sports'.*Baking, Drinks"):
        without_categories(rows, ["Sports"])


def test_a_share_is_drawn_by_the_seed(rows: dict[str, frozenset[str]]) -> None:
    drawn = [left_out_share(rows, 0.25, seed).ids for seed in range(20)]
    assert {len(ids) for ids in drawn} == {2}
    assert drawn[0] == left_out_share(dict(reversed(rows.items())), 0.25, 0).ids
    assert len(set(drawn)) > 10
    for share in (0, 1, -0.1):
        with pytest.raises(WrongInput, match="--leave-out"):
            left_out_share(rows, share, 42)


def test_the_categories_that_most_requests_need_come_first(
    rows: dict[str, frozenset[str]], requests: list[KnownRequest]
) -> None:
    assert most_needed(requests, rows, 2) == ["Drinks", "Baking"]


@pytest.mark.parametrize("name", ["commas", "gold-search"])
def test_transfer_measures_the_requests_that_need_the_rows(
    asking: Asking, requests: list[KnownRequest], rows: dict[str, frozenset[str]], name: str
) -> None:
    run = run_method(asking, METHODS[name], requests)
    found = transfer(asking, METHODS[name], run, without_categories(rows, ["Baking"]))
    none = transfer(asking, METHODS[name], run.among(["c"]), without_categories(rows, ["Baking"]))
    assert (found["queries"], found["unserved"], found["rows"], found["kind"]) == (1, 1, 2, "categories")
    assert found["with"]["da"] == found["without"]["da"]  # neither cuts by what is served
    assert found["without"]["srvr@1"] == found["with"]["srvr@1"] - 0.5
    assert (none["queries"], none["da"]) == (0, None)


def test_of_requests_without_servers_a_drawn_share_may_concern_each(
    rows: dict[str, frozenset[str]], requests: list[KnownRequest]
) -> None:
    unknown = [replace(request, main=()) for request in requests]
    assert needing(unknown, left_out_share(rows, 0.2, 42)) == unknown
    assert [r.query_id for r in needing(unknown, without_categories(rows, ["Baking"]))] == ["a"]
