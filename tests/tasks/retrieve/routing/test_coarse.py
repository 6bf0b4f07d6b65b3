from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.models.protocols import Vectors
from tasks.retrieve.routing import coarse, router
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.coarse import Coarse, best_of, coarse_of, leading, standardised
from tasks.retrieve.routing.learned_leg import LearnedLeg, Retriever, unit
from tasks.retrieve.routing.micro_batches import cosines
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill

WIDTH, ROWS = 24, 1500
WORDS = ["bread", "hive", "tyre", "ledger", "query", "poem", "kiln", "sail"]


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
    texts = [" ".join(chance.choice(WORDS, 3)) for _ in range(ROWS)]
    skills = [Skill(f"s/{row:04}", f"n{row}", text, "") for row, text in enumerate(texts)]
    postings, ids = postings_of(skills), [skill.doc_id for skill in skills]
    leg = LearnedLeg(drawn(ROWS, 9), _model, coarse=learned)
    return Router(
        ids, ids, lexical_of(postings), postings.sketches, drawn(ROWS), Drawn(), learned=leg, coarse=found
    )


def _model() -> Retriever:
    model: Retriever = Drawn()  # type: ignore[assignment]
    return model


REQUESTS = [
    "a ledger for the hive", "bread", "Fire the kiln well.\nMend the tyre at once.\nWrite a poem of bread.",
    *(f"{one} and {other} number {n}" for n, (one, other) in enumerate(zip(WORDS, WORDS[3:], strict=False))),
]  # fmt: skip


@pytest.mark.parametrize("fold", [True, False])
def test_the_first_by_a_scan_are_those_by_whole_vectors_with_the_same_scores(
    fold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "RESCORED", 150)
    monkeypatch.setattr(coarse, "_SAMPLE", 500)
    exact = of_rows(None, None)
    scan = of_rows(coarse_of(drawn(ROWS)), coarse_of(drawn(ROWS, 9)))
    shared = 0
    for request in REQUESTS:
        one, other = (made.rank(request, 10, fold=fold) for made in (exact, scan))
        assert one[0].doc_id == other[0].doc_id
        told = {found.doc_id: found for found in other}
        shared += len({found.doc_id for found in one} & told.keys())
        for found in one:
            if found.doc_id in told:
                assert told[found.doc_id].score == pytest.approx(found.score, abs=0.02)
                assert told[found.doc_id].evidence == pytest.approx(found.evidence, abs=0.02)
    assert shared >= 0.98 * 10 * len(REQUESTS)


def test_only_rows_that_are_allowed_are_rescored_however_few() -> None:
    scan = of_rows(coarse_of(drawn(ROWS)), None)
    allowed = np.zeros(ROWS, dtype=np.bool_)
    allowed[[3, 700]] = True
    assert {found.doc_id for found in scan.rank("bread", 5, allowed=allowed)} == {"s/0003", "s/0700"}


def test_all_rows_are_ranked_exactly_where_all_are_asked_for() -> None:
    exact, scan = (of_rows(found, None) for found in (None, coarse_of(drawn(ROWS))))
    rank = [[f.doc_id for f in made.rank("bread", ROWS, fold=False)] for made in (exact, scan)]
    assert len(rank[1]) == ROWS
    assert np.mean([a == b for a, b in zip(*rank, strict=True)]) > 0.9


def test_what_is_kept_is_read_by_name_and_only_where_there_is_a_file() -> None:
    vectors, none = drawn(9), np.zeros((9, 0), dtype=np.float32)
    made = {f"vectors_{part}": getattr(coarse_of(vectors), part) for part in ("scanned", "frame")}
    read = partial(coarse.coarse_kept, vectors, none, made.__getitem__)
    assert read([]) == {}
    (kept,) = read(["vectors_scanned.npy"]).values()
    np.testing.assert_array_equal(kept.cosines(vectors), coarse_of(vectors).cosines(vectors))
