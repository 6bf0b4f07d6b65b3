"""Measures of plans, worked out by hand."""

from __future__ import annotations

import pytest

from tasks.evaluate.compose.measures import Needed, NeededStep, Planned, PlannedStep, measured
from tasks.retrieve.compose.plan import closure


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

    assert {name for name, value in found.items() if value != 1} == {"steps"}
    assert found["steps"] == 2


def test_one_step_too_many_costs() -> None:
    found = measured(planned("a1", "x1", "b2 b1", edges=((0, 2),)), needed("a1", "b1", edges=((0, 1),)))

    assert (found["da"], found["da±1"]) == (0, 1)
    assert (found["srvr@1"], found["srvr@10"], found["catr@1"]) == (0.5, 1, 1)
    assert found["stepf1"] == pytest.approx(2 * 1 / 5)
    assert (found["edgef1"], found["graph"], found["plan"]) == (1, 0, 0)


def test_pairs_are_chosen_for_the_most_hits_and_by_place_beside() -> None:
    found = measured(planned("b1", "a1"), needed("a1", "b1"))

    assert (found["srvr@1"], found["chain"], found["positional_srvr@1"]) == (1, 1, 0)


def test_edges_are_compared_with_all_that_follows_from_them() -> None:
    chain = ((0, 1), (1, 2))
    found = measured(planned("a1", "b1", "c1", edges=chain), needed("a1", "b1", "c1", edges=((0, 2), (1, 2))))

    assert closure(chain) == {(0, 1), (1, 2), (0, 2)}
    assert found["edgef1"] == pytest.approx(2 * 2 / 5)
    assert found["graph"] == 0


def test_no_edges_on_either_side_are_right() -> None:
    assert measured(planned("a1"), needed("a1"))["edgef1"] == 1


def test_an_empty_plan_is_measured() -> None:
    found = measured(planned(), needed("a1"))

    assert (found["da"], found["da±1"], found["stepf1"], found["srvr@10"]) == (0, 1, 0, 0)
