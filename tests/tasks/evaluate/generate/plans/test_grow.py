"""Benches of plans: whatever the seed, each step is said, and served by rows that support it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.evaluate.generate.plans.grow import DIFFICULTIES, Grown, GrownRequest, grow, shares
from tasks.evaluate.generate.plans.shapes import SHAPES
from tasks.retrieve.compose.dependencies import closure
from tests.support.roots.plan_rows import TEXTS, plan_rows

ROWS = plan_rows()


@pytest.fixture(scope="module")
def bench() -> Grown:
    return grow(ROWS, 60, 42)


def told(request: GrownRequest, step: int) -> str:
    start, end = request.steps[step].span
    return request.query[start:end].lower()


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_every_step_is_said_and_served_and_edges_lead_onwards(seed: int) -> None:
    for request in grow(ROWS, 12, seed).requests:
        assert len(request.steps) in DIFFICULTIES[request.difficulty]
        assert all(0 <= a < b < len(request.steps) for a, b in request.edges)
        spans = sorted(step.span for step in request.steps)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
        for number, step in enumerate(request.steps):
            said = told(request, number)
            assert all(word in said for word in step.words), (said, step.words)
            assert any(word in said for word in step.any_of), (said, step.any_of)
            assert {*step.servers, *step.also} <= set(TEXTS)
            assert 1 <= len(step.servers) <= 3
        for one, other in combinations(request.steps, 2):
            assert not {*one.servers, *one.also} & {*other.servers, *other.also}


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_tags_say_what_the_edges_are(seed: int) -> None:
    for request in grow(ROWS, 12, seed).requests:
        steps = range(len(request.steps))
        needs = {n: [a for a, b in request.edges if b == n] for n in steps}
        gives = {n: [b for a, b in request.edges if a == n] for n in steps}
        joined = closure([*request.edges, *((b, a) for a, b in request.edges)])
        parallel = any((0, n) not in joined for n in steps if n)
        assert ("fan-in" in request.tags) == any(len(found) > 1 for found in needs.values())
        assert ("parallel" in request.tags) == parallel
        if "fan-out" in request.tags:
            assert any(len(found) > 1 for found in gives.values())
        if "conditional" in request.tags:
            assert " if " in request.query.lower() or request.query.startswith("If ")
        if "chain" in request.tags:
            assert request.edges


def test_the_same_rows_and_seed_give_the_same_in_whatever_order_the_rows_come() -> None:
    assert grow(ROWS, 40, 7) == grow(ROWS[::-1], 40, 7)
    assert grow(ROWS, 40, 7) != grow(ROWS, 40, 8)


def test_difficulties_are_a_half_a_third_and_the_rest() -> None:
    assert shares(300) == {"easy": 150, "medium": 100, "hard": 50}
    assert [sum(shares(n).values()) for n in range(1, 40)] == list(range(1, 40))


def test_requests_differ_and_are_told_in_many_ways(bench: Grown) -> None:
    queries = [request.query for request in bench.requests]

    assert len(set(queries)) == len(queries)
    tags = Counter(tag for request in bench.requests for tag in request.tags)
    assert {"chain", "fan-in", "fan-out", "parallel", "conditional", "reordered", "context"} <= set(tags)
    assert any("?" in query for query in queries)
    assert not any("MCP" in query or "powerful" in query for query in queries)


def test_copies_serve_what_their_original_serves(bench: Grown) -> None:
    steps = [step for request in bench.requests for step in request.steps]
    found = [step for step in steps if "fen/heron-mcp" in (*step.servers, *step.also)]

    assert found
    assert all("fen/heron-mcp-copy" in (*step.servers, *step.also) for step in found)


def test_rows_that_say_nothing_are_left_out_by_reason(bench: Grown) -> None:
    used = {name for request in bench.requests for step in request.steps for name in step.servers}

    assert bench.left_out == {"no-verb": 1, "no-description": 1, "unclear": 1}
    assert not used & {"dev/nothing", "dev/blank"}


@pytest.mark.parametrize("rows", [[], ROWS[:1], [row for row in ROWS if row.doc_id.startswith("skill/")]])
def test_an_index_that_is_too_small_gives_fewer(rows: list) -> None:  # type: ignore[type-arg]
    grown = grow(rows, 30, 42)

    assert len(grown.requests) < 30
    assert all(len(request.steps) <= len(rows) for request in grown.requests)


def test_a_shape_has_the_steps_it_is_filed_under() -> None:
    assert all(shape.steps == steps for steps, shapes in SHAPES.items() for shape, _ in shapes)
