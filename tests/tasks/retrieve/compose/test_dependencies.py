"""Dependencies between steps: what they are found by, and the order that keeps them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.dependencies import (
    Dependency,
    PlannedTask,
    closure,
    condition_of,
    ordered,
    planned,
    reduced,
)
from tasks.retrieve.compose.drafts import Draft, DraftStep
from tasks.retrieve.compose.task_model import packaged_model


def draft_of(task: str, *steps: str, in_order: bool = False) -> Draft:
    made = (DraftStep(step, ((task.index(step), task.index(step) + len(step)),)) for step in steps)
    return Draft(tuple(made), in_order=in_order)


def needs(task: str, draft: Draft) -> set[tuple[int, int]]:
    return {(d.before, d.after) for d in ordered(task, draft, packaged_model()).dependencies}


def test_what_collects_two_results_needs_both() -> None:
    task = "Look up the tide for Friday, find the ferry times, and put both on one page in the club's wiki."
    steps = ("Look up the tide for Friday", "find the ferry times", "put both on one page in the club's wiki")
    assert needs(task, draft_of(task, *steps)) == {(0, 2), (1, 2)}


def test_what_is_told_first_may_be_done_last() -> None:
    task = "Ping me in the team chat as soon as the backup in the vault has finished."
    steps = ("Ping me in the team chat", "as soon as the backup in the vault has finished")
    assert needs(task, draft_of(task, *steps)) == {(1, 0)}


def test_steps_in_an_order_need_no_later_one() -> None:
    task = "Ping me in the team chat as soon as the backup in the vault has finished."
    steps = ("as soon as the backup in the vault has finished", "Ping me in the team chat")
    assert needs(task, draft_of(task, *steps, in_order=True)) == {(0, 1)}


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("if it rains, move the picnic", "if it rains"),
        ("tell Ida as soon as the oven is hot", "as soon as the oven is hot"),
        ("once the dough has risen, bake it", "once the dough has risen"),
        ("post it at once and tell Ida", None),
        ("water the plants once a week", None),
        ("bake the bread", None),
    ],
)
def test_a_condition_is_what_a_step_waits_for(text: str, condition: str | None) -> None:
    assert condition_of(text) == condition


def dependency(before: int, after: int) -> Dependency:
    return Dependency(before, after, "data", "")


def pairs(plan: PlannedTask) -> set[tuple[int, int]]:
    return {(d.before, d.after) for d in plan.dependencies}


GRAPHS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=14)
    )
)


@given(GRAPHS)
def test_every_graph_has_an_order_that_keeps_its_dependencies(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    steps, edges = graph
    plan = planned(steps, [dependency(a, b) for a, b in edges])
    assert sorted(plan.order) == list(range(steps))
    assert [place for group in plan.groups for place in group] == list(plan.order)
    for before, after in pairs(plan):
        assert plan.order.index(before) < plan.order.index(after)
    side = {place: k for k, group in enumerate(plan.groups) for place in group}
    assert all(side[before] < side[after] for before, after in pairs(plan))


@given(GRAPHS)
def test_a_graph_without_a_circle_keeps_all_of_it(graph: tuple[int, list[tuple[int, int]]]) -> None:
    steps, edges = graph
    forward = {(a, b) for a, b in edges if a < b}
    assert pairs(planned(steps, [dependency(a, b) for a, b in sorted(forward)])) == forward


def test_of_a_circle_the_later_one_is_dropped() -> None:
    assert pairs(planned(2, [dependency(1, 0), dependency(0, 1)])) == {(1, 0)}


def test_steps_that_wait_for_the_same_may_be_done_side_by_side() -> None:
    plan = planned(4, [dependency(0, 3), dependency(1, 3), dependency(2, 3)])
    assert plan.groups == ((0, 1, 2), (3,))


def test_what_follows_from_other_dependencies_is_not_told() -> None:
    plan = planned(3, [dependency(0, 1), dependency(1, 2), dependency(0, 2)])
    assert pairs(reduced(plan, 3)) == {(0, 1), (1, 2)}


@given(GRAPHS)
def test_steps_are_told_in_the_order_of_the_task_wherever_they_may_be(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    steps, edges = graph
    plan = planned(steps, [dependency(a, b) for a, b in edges])
    assert sorted(place for group in plan.groups for place in group) == list(range(steps))
    assert all(list(group) == sorted(group) for group in plan.groups)
    # A step stands right after the last of what it needs: none could be done earlier.
    side = {place: k for k, group in enumerate(plan.groups) for place in group}
    needs = {place: [side[a] for a, b in pairs(plan) if b == place] for place in range(steps)}
    assert all(side[place] == max(needs[place], default=-1) + 1 for place in range(steps))


@given(GRAPHS, st.randoms(use_true_random=False))
def test_the_order_in_which_dependencies_are_found_does_not_change_a_plan_without_a_circle(
    graph: tuple[int, list[tuple[int, int]]], draw: random.Random
) -> None:
    steps, edges = graph
    forward = [dependency(a, b) for a, b in sorted({(a, b) for a, b in edges if a < b})]
    shuffled = draw.sample(forward, len(forward))
    assert planned(steps, shuffled) == planned(steps, forward)
    assert reduced(planned(steps, shuffled), steps) == reduced(planned(steps, forward), steps)


@given(GRAPHS)
def test_a_reduced_plan_means_the_same_with_no_dependency_to_spare(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    steps, edges = graph
    plan = planned(steps, [dependency(a, b) for a, b in edges])
    less = reduced(plan, steps)
    assert (less.order, less.groups) == (plan.order, plan.groups)
    assert closure(pairs(less)) == closure(pairs(plan))
    assert all(closure(pairs(less) - {one}) != closure(pairs(less)) for one in pairs(less))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_a_closure_is_closed(edges: list[tuple[int, int]]) -> None:
    closed = closure(edges)
    assert set(edges) <= closed == closure(closed)
    assert all((a, d) in closed for a, b in closed for c, d in closed if b == c)
