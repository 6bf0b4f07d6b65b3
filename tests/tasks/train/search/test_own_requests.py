"""Own requests: what they teach of reading, and what keeps it from being shipped."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import WrongInput
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.reranker import REACHES, Reach
from tasks.retrieve.routing.router import Ranked
from tasks.train.search.own_requests import (
    OWN,
    OwnRequest,
    Read,
    Tuning,
    beyond_chance,
    figures,
    held_out,
    judged,
    keep_held_out,
    own_requests,
    read_own,
    results_of,
)
from tasks.train.search.reading_fit import ReadResults, fit_reading, read_results, reading_report
from tasks.train.search.requests import FOREIGN, NEAR, Requests, kept_requests

REACH, MODEL = REACHES["best"], packaged_fit("best")
assert MODEL.reading is not None
NOW = Tuning(REACH.weight, MODEL.reading, MODEL.least)


def of_kinds(*kinds: str, every: int = 1, some: int = 0, seed: int = 0) -> Read:
    """Return the packaged held-out requests of some kinds as if they were a root's own."""
    held, odds = held_out("best")
    found = np.flatnonzero(np.isin(held.kinds, kinds))[::every]
    rows = np.random.default_rng(seed).choice(found, some, replace=False) if some else found
    own = held._replace(
        texts=[held.texts[row] for row in rows], kinds=np.where(held.kinds[rows] == NEAR, NEAR, OWN),
        gold=held.gold[rows], folds=held.folds[rows], first=held.first[rows], scores=held.scores[rows],
        fits=held.fits[rows], copies=[held.copies[row] for row in rows],
        unsure=[held.unsure[row] for row in rows],
    )  # fmt: skip
    return own, odds[rows]


@functools.cache
def of_tasks() -> tuple[Tuning, dict[str, Any]]:
    """Return what requests of one kind teach."""
    own, odds = of_kinds("task")
    return judged(own, lambda _: odds, "best", REACH, NOW)


def test_the_packaged_requests_hold_numbers_alone_and_give_the_figures_of_the_card() -> None:
    held, odds = held_out("best")
    assert set(held.texts) == {""}
    assert {*held.kinds} == {"short", "task", "oblique", NEAR, FOREIGN}
    assert odds.shape == (len(held.texts), REACH.skills)
    own = [figures(results_of((held, odds), decides, REACH, NOW.weight), NOW) for decides in (False, True)]
    assert all(0.50 < one["hit@1"] < 0.56 and 0.08 < one["wrongly_refused"] < 0.12 for one in own)


def test_requests_that_differ_teach_and_the_package_loses_nothing() -> None:
    found, told = of_tasks()
    (before, after), packaged = told["own"], told["packaged"]
    assert told["better"]
    assert after["log_loss"] < before["log_loss"] - 0.005
    assert packaged[1]["mrr@3"] >= packaged[0]["mrr@3"] - 0.005
    assert found.reading.tolist() != NOW.reading.tolist()


@pytest.mark.slow
def test_of_requests_like_the_packages_nothing_is_learned_oftener_than_by_chance() -> None:
    passed = 0
    for seed in range(3):
        own, odds = of_kinds("short", "task", "oblique", some=120, seed=seed)
        passed += judged(own, lambda _, odds=odds: odds, "best", REACH, NOW)[1]["better"]
    assert passed <= 1


def test_clicks_at_random_teach_nothing() -> None:
    own, odds = of_kinds("short", "task", "oblique", some=120, seed=3)
    draw = np.random.default_rng(3)
    clicked = [frozenset([int(first[draw.integers(10)])]) for first in own.first]
    own = own._replace(copies=clicked, unsure=clicked)
    assert not judged(own, lambda _: odds, "best", REACH, NOW)[1]["better"]


@pytest.mark.parametrize(
    ("gains", "beyond"),
    [([0.1] * 9 + [0.2], True), ([1.0, -0.9] * 20, False), ([0.0] * 9, False), ([5.0], False), ([], False)],
)
def test_gains_are_told_from_chance(gains: list[float], beyond: bool) -> None:
    assert beyond_chance(gains) is beyond


def test_lowering_the_least_probability_is_seen() -> None:
    results = results_of(held_out("best"), True, REACH, NOW.weight)
    accepted = [figures(results, NOW._replace(least=least))["wrongly_accepted"] for least in (0, 0.1, 1)]
    assert 1 >= accepted[0] > accepted[1] > accepted[2] == 0
    assert accepted[0] > 0.9


def test_what_is_used_now_is_what_has_to_be_bettered() -> None:
    own, odds = of_kinds("task")
    found, told = of_tasks()
    again = judged(own, lambda _: odds, "best", REACH, found)[1]
    assert again["own"][0] == told["own"][1]
    assert again["packaged"][0] == told["packaged"][0]


def test_too_few_requests_are_refused_before_anything_is_looked_for() -> None:
    asked = [OwnRequest(f"ask {n}", "a/b", kept=True) for n in range(18)]
    asked += [OwnRequest(" ask 1", "A/B", kept=False), OwnRequest("ask", "gone/gone", kept=True)]
    why = r"17 requests were kept .* at least 20 .*\(1 unknown, 1 contradicting, 0 beyond\)"
    with pytest.raises(WrongInput, match=why):
        own_requests(asked, ["a/b"], None, None)  # type: ignore[arg-type]


class _Router:
    """Ranks the same skills for each text."""

    vectors = np.eye(6, dtype=np.float32)

    def rank(self, _text: str, _most: int, *, fold: bool) -> list[Ranked]:
        assert not fold
        return [Ranked(name, 1.0, {}, fit=0.5) for name in _IDS]


_IDS = ["c/z", "a/y", "b/x", "d/w", "e/v", "f/u"]


def test_copies_are_on_one_side_and_the_last_lines_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.train.search.own_requests.MOST", 240)
    monkeypatch.setattr("tasks.train.search.own_requests.LEAST", 1)
    sketches = np.arange(24, dtype=np.uint32).reshape(6, 4)
    sketches[0] = sketches[1]
    asked = [OwnRequest(f"ask {n}", _IDS[n % 6], kept=True) for n in range(250)]
    own, left = own_requests(asked, _IDS, _Router(), sketches)  # type: ignore[arg-type]
    assert left == {"unknown": 0, "contradicting": 0, "beyond": 10}
    assert own.texts[0] == "ask 10"
    assert set(own.gold.tolist()) == {1, 2, 3, 4, 5}
    assert len(set(own.folds[own.gold == 1].tolist())) == 1


def test_what_is_kept_of_held_out_requests_is_read_again(tmp_path: Path) -> None:
    held, odds = held_out("best")
    keep_held_out(tmp_path / "held.npz", held, np.arange(0, 50), {"best": odds[:50]})
    found = kept_requests(tmp_path / "held.npz")
    assert found.copies == held.copies[:50]
    assert (found.first == held.first[:50]).all()
    assert (found.scores == held.scores[:50]).all()


def test_a_file_of_requests_says_which_line_is_none(tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text('{"query": "knead", "doc_id": "a/b", "kept": true}\n')
    assert read_own(file) == [OwnRequest("knead", "a/b", kept=True)]
    file.write_text('{"query": "knead", "doc_id": "a/b", "kept": "yes"}\n')
    with pytest.raises(WrongInput, match=r"asked.jsonl:1: `kept` is missing or neither true nor false"):
        read_own(file)


KINDS = ("short", "task", NEAR, FOREIGN)
TWELVE = Reach(12, 48, 0.5)
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


def read_by(held: Requests, knows: float) -> ReadResults:
    """Return results by a reader whose scores of what serves are higher by so much."""
    right = np.array([np.isin(f, list(c)) for f, c in zip(held.first, held.copies, strict=True)])
    serves = right & (held.kinds != NEAR)[:, None]
    odds = np.where(serves, knows, -knows) + np.random.default_rng(4).normal(size=right.shape)
    return read_results(held, np.arange(_ROWS), odds, TWELVE)


def test_results_are_of_pools_with_the_skill_and_without(held: Requests) -> None:
    results = read_by(held, 2.0)
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
    weights, least = fit_reading(read_by(held, 2.0))
    assert weights[2] + weights[3] > 0.5
    assert (weights[1:] >= 0).all()
    assert 0 < least < 1


def test_a_report_tells_near_skills_and_that_nothing_fits(held: Requests) -> None:
    told = reading_report(read_by(held, 2.0))
    assert set(told) == set(KINDS) - {NEAR}
    assert told[FOREIGN] > 0.5
    for kind in ("short", "task"):
        assert told[kind]["near"] > 0.9
        served, unserved = told[kind]["nothing"]
        assert served < 0.15
        assert unserved > 0.5
    assert reading_report(read_by(held, 0.0))["task"]["near"] < told["task"]["near"]
