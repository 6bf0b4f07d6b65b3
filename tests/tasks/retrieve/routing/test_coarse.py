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
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit
from tasks.retrieve.routing import coarse
from tasks.retrieve.routing import router as routing
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.coarse import Coarse, best_of, coarse_of, leading, standardised
from tasks.retrieve.routing.learned_leg import LearnedLeg, Retriever, packaged_retriever
from tasks.retrieve.routing.micro_batches import MicroBatches, cosines
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.skill_tokens import skill_tokens_of
from tests.support.models.routing_material import SKILLS

WIDTH, DRAWN_ROWS = 24, 1500


TOPICS = ["bread", "hive", "tyre", "ledger", "query", "poem", "kiln", "sail"]


def drawn(rows: int, seed: int = 0) -> Vectors:
    """Return unit vectors that lie mostly along a few directions, as those of an encoder do."""
    chance = np.random.default_rng(seed)
    strengths = 0.7 ** np.arange(WIDTH)
    return unit((0.3 + chance.standard_normal((rows, WIDTH))) * strengths)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(20, 300), st.integers(1, 4))
def test_whole_cosines_of_some_rows_are_standardised_by_those_of_all(
    seed: int, rows: int, queries: int
) -> None:
    vectors, asked = drawn(rows, seed), drawn(queries, seed + 1)
    some = np.random.default_rng(seed).permutation(rows)[: rows // 2 + 1]
    of_all = np.stack([standardised(row) for row in cosines(vectors, asked)])
    np.testing.assert_allclose(coarse_of(vectors).standardised(asked, some), of_all[:, some], atol=2e-3)


def test_rows_that_are_all_alike_say_nothing() -> None:
    alike = np.tile(drawn(1), (5, 1))
    assert coarse_of(alike).standardised(drawn(2, 1), np.arange(5)).tolist() == [[0] * 5] * 2


def test_a_scan_reads_a_sixth_and_misses_nothing_of_vectors_that_lie_along_so_few_axes() -> None:
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((WIDTH, WIDTH // 6)))[0]
    vectors = unit(drawn(200) @ basis @ basis.T)
    found = coarse_of(vectors)
    assert found.scanned.shape == (200, WIDTH // 6)
    assert found.whole()
    np.testing.assert_allclose(found.cosines(drawn(3, 1)), cosines(vectors, drawn(3, 1)), atol=1e-5)


def test_the_best_of_several_facets_is_standardised_as_if_all_rows_were_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coarse, "_SAMPLE", 600)
    vectors, asked, rows = drawn(3000), drawn(5, 3), np.arange(0, 3000, 7)
    found = coarse_of(vectors)
    scanned = best_of(np.stack([standardised(row) for row in found.cosines(asked)]))
    whole, best = found.rescored(asked, rows, scanned)
    near = np.stack([standardised(row) for row in cosines(vectors, asked)])
    np.testing.assert_allclose(whole, near[-1][rows], atol=1e-3)
    np.testing.assert_allclose(best, standardised(best_of(near))[rows], atol=0.1)


def test_rows_that_tie_with_the_last_that_leads_lead_too() -> None:
    scores = np.array([1, 3, 2, 2, 0], dtype=np.float32)
    assert leading(np.arange(5), scores, 2).tolist() == [1, 2, 3]
    assert leading(np.array([0, 4]), scores, 2).tolist() == [0, 4]


class Drawn:
    """Encodes a text as a vector drawn by its letters."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        return np.concatenate([drawn(1, sum(map(ord, text))) for text in texts])

    def requests(self, texts: Sequence[str]) -> tuple[Vectors, list[float]]:
        return self.encode([text[::2] for text in texts]), [1.0] * len(texts)


def of_rows(found: Coarse | None, learned: Coarse | None) -> Router:
    chance = np.random.default_rng(5)
    texts = [" ".join(chance.choice(TOPICS, 3)) for _ in range(DRAWN_ROWS)]
    skills = [Skill(f"s/{row:04}", f"n{row}", text, "") for row, text in enumerate(texts)]
    postings, ids = postings_of(skills), [skill.doc_id for skill in skills]
    leg = LearnedLeg(drawn(DRAWN_ROWS, 9), _model, coarse=learned)
    return Router(
        ids,
        ids,
        lexical_of(postings),
        postings.sketches,
        drawn(DRAWN_ROWS),
        Drawn(),
        learned=leg,
        coarse=found,
    )


def _model() -> Retriever:
    model: Retriever = Drawn()  # type: ignore[assignment]
    return model


ASKED = [
    "a ledger for the hive", "bread", "Fire the kiln well.\nMend the tyre at once.\nWrite a poem of bread.",
    *(f"{one} and {other} no. {n}" for n, (one, other) in enumerate(zip(TOPICS, TOPICS[3:], strict=False))),
]  # fmt: skip


@pytest.mark.parametrize("fold", [True, False])
def test_the_first_by_a_scan_are_those_by_whole_vectors_with_the_same_scores(
    fold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "RESCORED", 150)
    monkeypatch.setattr(coarse, "_SAMPLE", 500)
    exact = of_rows(None, None)
    scan = of_rows(coarse_of(drawn(DRAWN_ROWS)), coarse_of(drawn(DRAWN_ROWS, 9)))
    shared = 0
    for request in ASKED:
        one, other = (made.rank(request, 10, fold=fold) for made in (exact, scan))
        assert one[0].doc_id == other[0].doc_id
        told = {found.doc_id: found for found in other}
        shared += len({found.doc_id for found in one} & told.keys())
        for found in one:
            if found.doc_id in told:
                assert told[found.doc_id].score == pytest.approx(found.score, abs=0.02)
                assert told[found.doc_id].evidence == pytest.approx(found.evidence, abs=0.02)
    assert shared >= 0.98 * 10 * len(ASKED)


def test_of_rows_asked_for_only_those_allowed_and_all_of_them_are_ranked() -> None:
    # Only rows that are allowed are rescored however few.
    scan = of_rows(coarse_of(drawn(DRAWN_ROWS)), None)
    allowed = np.zeros(DRAWN_ROWS, dtype=np.bool_)
    allowed[[3, 700]] = True
    assert {found.doc_id for found in scan.rank("bread", 5, allowed=allowed)} == {"s/0003", "s/0700"}
    # All rows are ranked exactly where all are asked for.
    exact, scan = (of_rows(found, None) for found in (None, coarse_of(drawn(DRAWN_ROWS))))
    rank = [[f.doc_id for f in made.rank("bread", DRAWN_ROWS, fold=False)] for made in (exact, scan)]
    assert len(rank[1]) == DRAWN_ROWS
    assert np.mean([a == b for a, b in zip(*rank, strict=True)]) > 0.9


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


def test_what_comes_while_a_call_is_under_way_goes_together_and_what_fails_fails_alone() -> None:
    # What comes while a call is under way goes together into the next.
    sizes, results = asked_while_held(Holding(), range(1, 9))
    assert sizes == [1, 8]
    assert results == [2, 4, 6, 8, 10, 12, 14, 16]
    # A value that fails fails alone.
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


SAID = [
    "my", "bicycle", "lost", "its", "air.", "fix", "the", "tyre", "before", "noon,", "\u4fee", "knead",
    "sour", "dough?\nthen", "bake", "it",
]  # fmt: skip


def test_requests_that_come_at_once_are_answered_as_each_alone(router: Router) -> None:
    requests = [" ".join(SAID[at : at + 3 + at % 4]) for at in range(len(SAID) - 3)] * 2
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
