"""Own requests: what they teach of reading, and what keeps it from being shipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.errors import StorageError, WrongInput
from storage.root import Root
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.reranker import REACHES
from tasks.retrieve.routing.tuned import FILE, Tuned, read_tuned, write_tuned
from tasks.train.search.own_requests import (
    OWN,
    OwnRequest,
    Read,
    Tuning,
    figures,
    held_out,
    judged,
    keep_held_out,
    read_own,
    results_of,
    verdict,
)
from tasks.train.search.requests import FOREIGN, NEAR, kept_requests

REACH, MODEL = REACHES["best"], packaged_fit("best")
assert MODEL.reading is not None
NOW = Tuning(REACH.weight, MODEL.reading, MODEL.least)


def of_kinds(*kinds: str, every: int = 1) -> Read:
    """Return the packaged held-out requests of some kinds as if they were a root's own."""
    held, odds = held_out("best")
    rows = np.flatnonzero(np.isin(held.kinds, kinds))[::every]
    own = held._replace(
        texts=[held.texts[row] for row in rows], kinds=np.where(held.kinds[rows] == NEAR, NEAR, OWN),
        gold=held.gold[rows], folds=held.folds[rows], first=held.first[rows], scores=held.scores[rows],
        fits=held.fits[rows], copies=[held.copies[row] for row in rows],
        unsure=[held.unsure[row] for row in rows],
    )  # fmt: skip
    return own, odds[rows]


def test_the_packaged_requests_hold_numbers_alone_and_give_the_figures_of_the_card() -> None:
    held, odds = held_out("best")
    assert set(held.texts) == {""}
    assert {*held.kinds} == {"short", "task", "oblique", NEAR, FOREIGN}
    assert odds.shape == (len(held.texts), REACH.skills)
    own = [figures(results_of((held, odds), decides, REACH, NOW.weight), NOW) for decides in (False, True)]
    assert all(0.50 < one["hit@1"] < 0.56 and 0.08 < one["wrongly_refused"] < 0.12 for one in own)


def test_requests_that_differ_teach_and_the_package_loses_nothing() -> None:
    own, odds = of_kinds("oblique")
    found, told = judged(own, lambda _: odds, "best", REACH, NOW)
    (before, after), packaged = told["own"], told["packaged"]
    assert told["better"]
    assert after["log_loss"] < before["log_loss"] - 0.005
    assert packaged[1]["mrr@3"] >= packaged[0]["mrr@3"] - 0.005
    assert found.reading.tolist() != NOW.reading.tolist()


def test_nothing_is_shipped_of_requests_whose_verdicts_are_chance() -> None:
    own, odds = of_kinds("short", every=3)
    drawn = np.random.default_rng(1).permuted(odds, axis=1)
    assert not judged(own, lambda _: drawn, "best", REACH, NOW)[1]["better"]


@pytest.mark.parametrize(
    ("own", "packaged", "better"),
    [
        ({"hit@1": 0.1}, {}, True),
        ({"log_loss": -0.1}, {"hit@1": -0.004}, True),
        ({"hit@1": 0.004}, {}, False),
        ({"log_loss": 0.1, "hit@1": 0.1}, {}, False),
        ({"hit@1": 0.1}, {"wrongly_refused": 0.01}, False),
        ({}, {"hit@1": 0.1}, False),
    ],
)
def test_own_requests_must_gain_and_nothing_may_lose(
    own: dict[str, float], packaged: dict[str, float], better: bool
) -> None:
    was = dict.fromkeys(("hit@1", "mrr@3", "log_loss", "wrongly_refused"), 0.5)
    moved = [{name: was[name] + by.get(name, 0.0) for name in was} for by in (own, packaged)]
    assert verdict((was, moved[0]), (was, moved[1])) is better


def test_too_few_requests_teach_nothing() -> None:
    own, odds = of_kinds("oblique", every=20)
    with pytest.raises(WrongInput, match="14 teach and 12 decide; at least 20 must"):
        judged(own, lambda _: odds, "best", REACH, NOW)


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


def test_what_is_tuned_is_kept_and_removed(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert read_tuned(root) is None
    tuned = Tuned("best", 1.2, (0.1, 0.2, 0.3, 0.4, 0.5), 0.2, 90, "2026-01-02T03:04:05+00:00")
    assert not write_tuned(root, tuned)
    assert read_tuned(root) == tuned
    assert tuned.reach == REACH._replace(weight=1.2)
    fit = tuned.fit(MODEL)
    assert fit.reading is not None
    assert (fit.reading.tolist(), fit.least) == ([0.1, 0.2, 0.3, 0.4, 0.5], 0.2)
    root.write_json(FILE, {**tuned._asdict(), "rerank": "worst"})
    with pytest.raises(StorageError, match="train requests --remove"):
        read_tuned(root)
    assert write_tuned(root, None)
    assert read_tuned(root) is None
