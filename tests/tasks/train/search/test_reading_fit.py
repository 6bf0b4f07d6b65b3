from __future__ import annotations

import numpy as np
import pytest

from tasks.retrieve.routing.reranker import Reach
from tasks.train.search.reading_fit import ReadResults, fit_reading, read_results, reading_report
from tasks.train.search.requests import FOREIGN, NEAR, Requests

KINDS = ("short", "task", NEAR, FOREIGN)
REACH = Reach(12, 48, 0.5)
_SKILLS, _ROWS = 12, 240


@pytest.fixture(scope="module")
def held() -> Requests:
    """Return requests of which the legs know little; one skill has a copy."""
    draw = np.random.default_rng(3)
    kinds = np.array(KINDS * (_ROWS // 4))
    first = np.array([draw.permutation(_SKILLS) for _ in range(_ROWS)])
    gold = np.where(kinds == FOREIGN, -1, first[np.arange(_ROWS), draw.integers(0, 4, size=_ROWS)])
    scores = np.sort(draw.normal(size=(_ROWS, _SKILLS)))[:, ::-1]
    of = {-1: frozenset[int](), 0: frozenset({0, 1})}
    copies = [of.get(row, frozenset({row})) for row in gold.tolist()]
    unsure = [some | {5} if some else some for some in copies]
    texts = [f"request {n}" for n in range(_ROWS)]
    return Requests(texts, kinds, gold, gold % 5, first, scores, scores - 1, copies, unsure)


def read(held: Requests, knows: float) -> ReadResults:
    """Return results by a reader whose scores of what serves are higher by so much."""
    right = np.array([np.isin(f, list(c)) for f, c in zip(held.first, held.copies, strict=True)])
    serves = right & (held.kinds != NEAR)[:, None]
    odds = np.where(serves, knows, -knows) + np.random.default_rng(4).normal(size=right.shape)
    return read_results(held, np.arange(_ROWS), odds, REACH)


def test_results_are_of_pools_with_the_skill_and_without(held: Requests) -> None:
    results = read(held, 2.0)
    served = (~np.isin(held.kinds, [NEAR, FOREIGN])).sum()
    counts = {pool: int((results.pool == pool).sum()) for pool in ("whole", "without", FOREIGN)}
    assert counts == {"whole": 3 * served, "without": 3 * served, FOREIGN: 3 * (held.kinds == FOREIGN).sum()}
    assert results.right[results.pool == "whole"].any()
    assert not results.right[results.pool != "whole"].any()
    near = results.pool == NEAR
    assert set(results.kind[near]) == {NEAR}
    assert near.sum() == sum(
        len(own) for own, kind in zip(held.copies, held.kinds, strict=True) if kind == NEAR
    )


def test_what_reading_says_counts_and_speaks_for_a_skill(held: Requests) -> None:
    weights, least = fit_reading(read(held, 2.0))
    assert weights[2] + weights[3] > 0.5
    assert (weights[1:] >= 0).all()
    assert 0 < least < 1


def test_a_report_tells_near_skills_and_that_nothing_fits(held: Requests) -> None:
    told = reading_report(read(held, 2.0))
    assert set(told) == set(KINDS) - {NEAR}
    assert told[FOREIGN] > 0.5
    for kind in ("short", "task"):
        assert told[kind]["near"] > 0.9
        served, unserved = told[kind]["nothing"]
        assert served < 0.15
        assert unserved > 0.5
    assert reading_report(read(held, 0.0))["task"]["near"] < told["task"]["near"]
