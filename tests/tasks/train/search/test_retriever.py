from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.retrieve.routing.learned_leg import Retriever
from tasks.retrieve.routing.skill_tokens import skill_tokens_of
from tasks.train.search import retriever
from tasks.train.search.requests import FOREIGN, NEAR, Requests
from tasks.train.search.retriever import RetrieverRecipe, Teaching, TwoSides, report, train_retriever
from tests.support.models.routing_material import SKILLS
from tests.support.roots.skill_root import Export

TOKENS = skill_tokens_of(SKILLS)
RECIPE = RetrieverRecipe(rank=4, epochs=6, batch=3, drawn=1.0)
BODIES = np.zeros((len(SKILLS), 384), dtype=np.float32)
_NOBODY = -2  # a fold that no request is in


def test_groups_hold_each_request_once_its_skill_and_none_that_may_serve_beside(held: Requests) -> None:
    groups = Teaching(held, TOKENS, BODIES, RECIPE, _NOBODY).batches()
    rows = [row for group in groups for row in group.rows.tolist()]
    assert len(rows) == len(set(rows))
    assert not np.isin(held.kinds[rows], [NEAR, FOREIGN]).any()
    for group in groups:
        gold = held.gold[group.rows].tolist()
        assert set(gold) <= set(group.skills)
        for row in group.near:
            assert held.kinds[row] == NEAR
            assert held.gold[row] in gold


def test_requests_that_a_skill_does_not_serve_move_away_from_it(held: Requests) -> None:
    teaching = Teaching(held, TOKENS, BODIES, RECIPE, _NOBODY)
    group = next(group for group in teaching.batches() if len(group.near))
    network = TwoSides(4, 0)
    with_near, without = (teaching.loss(network, g) for g in (group, group._replace(near=group.near[:0])))
    assert float(with_near.detach()) > float(without.detach())


def test_what_is_learned_is_served_and_is_the_same_each_time(held: Requests) -> None:
    short = replace(RECIPE, epochs=1)
    one, again = (train_retriever(held, TOKENS, short, _NOBODY) for _ in range(2))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    one = train_retriever(held, TOKENS, RECIPE, _NOBODY)
    served = np.flatnonzero(~np.isin(held.kinds, [NEAR, FOREIGN]))
    told = report(held, served, Retriever(one), TOKENS)
    assert told["short"][0] > 0.7
    assert told["short"][1] == 1


def test_the_command_writes_weights_and_tells_how_well_the_held_out_fold_does(
    request_files: tuple[Path, Path], minilm_export: Export, held: Requests, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "weights.npz"
    given = [str(minilm_export.folder), *map(str, request_files), "--work", str(tmp_path / "work")]
    given += ["--out", str(out), "--fold", str(held.folds[0])]
    monkeypatch.setattr("sys.argv", ["retriever", *given])
    retriever.main()
    assert {"short", NEAR} == set(json.loads(capsys.readouterr().out))
    with np.load(out) as arrays:
        assert {"body", "skip", "rarity", "mean", "common"} < set(arrays.files)
