from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.learned_leg import LearnedLeg, packaged_retriever
from tasks.retrieve.routing.micro_batches import MicroBatches, cosines
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill_tokens import skill_tokens_of
from tests.support.models.routing_material import SKILLS


class Holding:
    """Doubles numbers, fails at 0, and is held in its first call until it is let go."""

    def __init__(self) -> None:
        self.batches, self.held, self.may_go = list[list[int]](), threading.Event(), threading.Event()

    def __call__(self, values: list[int]) -> list[int]:
        self.batches.append(values)
        if not self.held.is_set():
            self.held.set()
            assert self.may_go.wait(30)
        if 0 in values:
            raise ZeroDivisionError
        return [2 * value for value in values]


def asked_while_held(work: Holding, values: Sequence[int]) -> tuple[list[int], list[object]]:
    """Return the batches' sizes, and results or errors, of values that come while a call is under way."""
    batches = MicroBatches[int, int](lanes=1)

    def outcome(value: int) -> object:
        try:
            return batches(work, value)
        except ZeroDivisionError as error:
            return type(error)

    with ThreadPoolExecutor(1 + len(values)) as pool:
        first = pool.submit(batches, work, 100)
        assert work.held.wait(30)
        others = [pool.submit(outcome, value) for value in values]
        while len(batches._waiting) < len(values):
            threading.Event().wait(0.001)
        work.may_go.set()
        assert first.result() == 200
        results = [other.result() for other in others]
        return [len(batch) for batch in work.batches], results


def test_what_comes_while_a_call_is_under_way_goes_together_into_the_next() -> None:
    sizes, results = asked_while_held(Holding(), range(1, 9))
    assert sizes == [1, 8]
    assert results == [2, 4, 6, 8, 10, 12, 14, 16]


def test_a_value_that_fails_fails_alone() -> None:
    _, results = asked_while_held(Holding(), [1, 0, 2])
    assert results == [2, ZeroDivisionError, 4]


def test_a_call_begins_at_once_where_a_lane_is_free() -> None:
    work = Holding()
    batches = MicroBatches[int, int](lanes=2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(batches, work, 1)
        assert work.held.wait(30)
        assert batches(work, 2) == 4
        work.may_go.set()
        assert first.result() == 2


@settings(max_examples=20)
@given(rows=st.integers(0, 600), queries=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_cosine_does_not_depend_on_the_other_queries(rows: int, queries: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors, asked = (random.standard_normal((n, 48), dtype=np.float32) for n in (rows, queries))
    found = cosines(vectors, asked)
    assert found.shape == (queries, rows)
    np.testing.assert_allclose(found, asked @ vectors.T, atol=1e-4)
    for place in range(queries):
        np.testing.assert_array_equal(found[place], cosines(vectors, asked[place : place + 1])[0])


@pytest.fixture(scope="module")
def router(minilm: OnnxEncoder) -> Router:
    learned = packaged_retriever(1).skills(skill_tokens_of(SKILLS))
    leg = LearnedLeg(learned, partial(packaged_retriever, 1), learned)
    return Router.from_documents(SKILLS, minilm, learned=leg)


WORDS = [
    "my", "bicycle", "lost", "its", "air.", "fix", "the", "tyre", "before", "noon,", "\u4fee", "knead",
    "sour", "dough?\nthen", "bake", "it",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join), min_size=2, max_size=12)
)
def test_what_is_made_of_requests_together_equals_what_is_made_of_each_alone(
    router: Router, requests: list[str]
) -> None:
    queries = [(request, request.splitlines()) for request in requests]
    for query, (asked, near, told) in zip(queries, router._together(queries), strict=True):
        [(alone, near_alone, told_alone)] = router._together([query])
        np.testing.assert_array_equal(asked, alone)
        np.testing.assert_array_equal(near, near_alone)
        np.testing.assert_array_equal(told.cosines, told_alone.cosines)
        np.testing.assert_array_equal(told.request, told_alone.request)
        np.testing.assert_array_equal(told.foretold, told_alone.foretold)
        assert told.share == told_alone.share


def test_requests_that_come_at_once_are_answered_as_each_alone(router: Router) -> None:
    requests = [" ".join(WORDS[at : at + 3 + at % 4]) for at in range(len(WORDS) - 3)] * 2
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(partial(router.rank, k=5), requests)) == [router.rank(r, 5) for r in requests]


def test_a_router_that_nobody_holds_is_gone_with_its_files_without_a_search_for_garbage(
    minilm: OnnxEncoder,
) -> None:
    gone = weakref.ref(made := Router.from_documents(SKILLS, minilm))
    assert made.rank("fix a tyre", 1)
    gc.disable()
    try:
        del made
        assert gone() is None
    finally:
        gc.enable()
