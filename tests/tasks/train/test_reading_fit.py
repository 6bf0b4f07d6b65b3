from __future__ import annotations

import numpy as np
import pytest

from tasks.train.reading_fit import fit_reading, read_results, reading_report
from tasks.train.requests import NEAR, Requests

KINDS = ("short", "task", NEAR)
_SKILLS, _ROWS = 12, 240


@pytest.fixture(scope="module")
def held() -> Requests:
    """Return requests of which the legs know little and reading, `odds`, much; one skill has a copy."""
    draw = np.random.default_rng(3)
    first = np.array([draw.permutation(_SKILLS) for _ in range(_ROWS)])
    gold = first[np.arange(_ROWS), draw.integers(0, 4, size=_ROWS)]
    scores = np.sort(draw.normal(size=(_ROWS, _SKILLS)))[:, ::-1]
    copies = [frozenset({row, (row + 1) % _SKILLS} if row == 0 else {row}) for row in gold.tolist()]
    unsure = [some | {5} for some in copies]
    texts, kinds = [f"request {n}" for n in range(_ROWS)], np.array(KINDS * (_ROWS // 3))
    return Requests(texts, kinds, gold, gold % 5, first, scores, scores - 1, copies, unsure)


@pytest.fixture(scope="module")
def odds(held: Requests) -> np.ndarray:
    right = np.array([np.isin(f, list(c)) for f, c in zip(held.first, held.copies, strict=True)])
    serves = right & (held.kinds != NEAR)[:, None]
    return np.where(serves, 2.0, -2.0) + np.random.default_rng(4).normal(size=right.shape)


def test_results_are_of_pools_with_the_skill_and_without(held: Requests, odds: np.ndarray) -> None:
    rows = np.arange(_ROWS)
    results = read_results(held, rows, odds, 0.5)
    asked = (held.kinds != NEAR).sum()
    for pool in ("whole", "without"):
        assert (results.pool == pool).sum() == 3 * asked
    assert results.right[results.pool == "whole"].any()
    assert not results.right[results.pool != "whole"].any()
    near = results.pool == "near"
    assert set(results.kind[near]) == {NEAR}
    assert near.sum() == sum(len(held.copies[row]) for row in rows if held.kinds[row] == NEAR)


def test_what_reading_says_counts_and_speaks_for_a_skill(held: Requests, odds: np.ndarray) -> None:
    weights, least = fit_reading(read_results(held, np.arange(_ROWS), odds, 0.5))
    assert weights[2] > 0.5
    assert (weights[1:] >= 0).all()
    assert 0 < least < 1


def test_a_report_tells_near_skills_and_that_nothing_fits(held: Requests, odds: np.ndarray) -> None:
    told = reading_report(read_results(held, np.arange(_ROWS), odds, 0.5))
    assert set(told) == set(KINDS) - {NEAR}
    for of_kind in told.values():
        assert of_kind["near"] > 0.9
        served, unserved = of_kind["nothing"]
        assert served < 0.15
        assert unserved > 0.5
    nothing = reading_report(read_results(held, np.arange(_ROWS), np.zeros_like(odds), 0.5))
    assert nothing["task"]["near"] < told["task"]["near"]
