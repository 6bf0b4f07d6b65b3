from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.fit import FILE as FIT
from tasks.retrieve.routing.learned_leg import Retriever
from tasks.retrieve.routing.reranker import PairScorer
from tasks.retrieve.routing.skill_tokens import skill_tokens_of
from tasks.train.search import reranker, retriever
from tasks.train.search.requests import FOREIGN, NEAR, Requests, keep_requests, kept_requests, read_requests
from tasks.train.search.reranker import (
    Goal,
    Lists,
    PairNetwork,
    RerankerRecipe,
    list_loss,
    rarity_of,
    rates_of,
    train_pairs,
)  # fmt: skip
from tasks.train.search.retriever import RetrieverRecipe, Teaching, TwoSides, train_retriever
from tasks.train.search.retriever import report as found_alone
from tests.support.models.routing_material import SKILLS
from tests.support.roots.hand_written import skill
from tests.support.roots.skill_root import Export

_ASKED = {
    "sourdough": "the loaf is flat", "bees": "mites in the hive", "tyre": "my bicycle lost its air",
    "roses": "when do I cut the bush", "knife": "the blade is blunt", "candles": "what to do with old wax",
}  # fmt: skip
ID = "owner-of-{0}--{0}"  # each skill has an owner


@pytest.fixture(scope="session")
def request_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a file of requests, and one of skills."""
    folder = tmp_path_factory.mktemp("requests")
    texts = [(ID.format(s.doc_id.replace("/", "-")), s.name, s.description, s.body) for s in SKILLS]
    corpus = pl.DataFrame(
        [(doc_id, skill(name, told, body)) for doc_id, name, told, body in texts],
        schema=["id", "content"], orient="row",
    )  # fmt: skip
    corpus.write_parquet(folder / "skills.parquet")
    lines = [
        {"kind": kind, "text": f"{text}, {kind}", "doc_id": ID.format(f"home-{name}"), "alone": "one"}
        for name, text in _ASKED.items()
        for kind in ("short", NEAR)
    ]
    lines.append({"kind": "short", "text": "patch a tyre", "doc_id": ID.format("copy-tyre"), "alone": "many"})
    lines.append({"kind": "short", "text": "of another corpus", "doc_id": "gone--gone", "alone": "one"})
    (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "requests.jsonl", folder / "skills.parquet"


@pytest.fixture(scope="session")
def held(request_files: tuple[Path, Path], minilm: OnnxEncoder) -> Requests:
    return read_requests(*request_files, minilm)[0]


_SERVED = 13  # requests of the file whose skill is there
RECIPE = RerankerRecipe(rank=4, lists=2, others=3, easy=2, epochs=1)


def test_requests_know_their_skill_its_copies_and_what_is_found_first(held: Requests) -> None:
    foreign = held.kinds == FOREIGN
    assert (~foreign).sum() == _SERVED
    assert foreign.sum() > 100
    assert (held.gold[foreign] == -1).all()
    assert len(held.texts) == len(held.gold)
    assert held.first.shape == held.scores.shape == held.fits.shape == (len(held.texts), len(SKILLS))
    tyres = {row for row, one in enumerate(SKILLS) if "tyre" in one.doc_id}
    assert held.copies[4] == held.copies[_SERVED - 1] == frozenset(tyres)
    for row in range(_SERVED):
        assert int(held.gold[row]) in held.copies[row] <= held.unsure[row]
    assert (
        held.folds[4] == held.folds[_SERVED - 1]
    )  # of two owners, one of whom has a copy of the other's skill
    assert len(set(held.folds.tolist())) > 1


def test_what_was_found_is_kept(held: Requests, tmp_path: Path) -> None:
    keep_requests(tmp_path / "held.npz", held)
    kept = kept_requests(tmp_path / "held.npz")
    for name, one, other in zip(held._fields, held, kept, strict=True):
        assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other, name


def lists(held: Requests) -> Lists:
    tokens = skill_tokens_of(SKILLS)
    return Lists(held, held.first, tokens, rarity_of(tokens), RECIPE)


def test_an_epoch_compares_and_later_ones_also_teach_that_nothing_may_serve(held: Requests) -> None:
    drawn, goals = lists(held), dict[tuple[bool, str], set[Goal]]()
    for step in range(20):
        for row, kind in enumerate(held.kinds[: _SERVED + 1].tolist()):
            for late in (False, True):
                pairs, starts, told = drawn.drawn([row], step, late=late)
                assert starts == [0]
                assert late or kind == FOREIGN or (len(pairs) == 1) == (kind == NEAR)
                goals.setdefault((late, kind), set()).update(told)
    assert goals == {
        (False, "short"): {"first"}, (True, "short"): {"first", "none"},
        (False, NEAR): {"apart"}, (True, NEAR): {"apart"},
        (False, FOREIGN): {"none"}, (True, FOREIGN): {"none"},
    }  # fmt: skip


def test_an_epoch_more_goes_on_from_those_before() -> None:
    one, two = rates_of([100], 0.5), rates_of([100, 60], 0.5)
    assert [one(step) for step in range(100)] == [two(step) for step in range(100)]
    assert max(map(two, range(100, 160))) == pytest.approx(0.5 * max(map(two, range(100))), rel=0.05)


def test_every_request_is_drawn_once_an_epoch(held: Requests) -> None:
    batches = lists(held).batches(np.arange(12), epoch=0)
    assert sorted(row for batch in batches for row in batch) == list(range(12))


def test_the_likelier_its_skill_the_smaller_the_loss_of_a_list() -> None:
    cases: list[tuple[Goal, list[float], list[float]]] = [
        ("first", [3.0, 0.0], [0.0, 3.0]), ("none", [-3.0, -3.0], [3.0, -3.0]),
        ("apart", [-3.0], [3.0]), ("apart", [0.0, 3.0], [3.0, 0.0]),
    ]  # fmt: skip
    for goal, better, worse in cases:
        low, high = (float(list_loss(torch.tensor(s), [0], [goal], 0.5)) for s in (better, worse))
        assert low < high


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(
    held: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    save = torch.save

    def saved(state: dict[str, Any], file: Path) -> None:
        save(state, file)
        if state["step"] == 3:
            shutil.copy(file, stopped / file.name)

    whole.mkdir()
    stopped.mkdir()
    monkeypatch.setattr(reranker, "_SPARED", 1)
    monkeypatch.setattr(torch, "save", saved)
    fold, noted, taught = int(held.folds[0]), lists(held), list[int]()
    drawn = noted.batches
    monkeypatch.setattr(noted, "batches", lambda rows, epoch: taught.extend(rows) or drawn(rows, epoch))
    one = train_pairs(held, noted, RECIPE, fold, whole).arrays()
    assert len(taught)
    assert fold not in held.folds[taught]
    again = train_pairs(held, lists(held), RECIPE, fold, stopped).arrays()
    assert all(np.array_equal(one[name], again[name]) for name in one)
    plain = PairNetwork(RECIPE.rank, RECIPE.seed).arrays()
    assert any(not np.array_equal(one[name], plain[name]) for name in one)


def test_what_is_served_reads_as_what_was_trained(held: Requests) -> None:
    network, draw = PairNetwork(4, 0), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in network.parameters():
            value.add_(0.05 * torch.randn(value.shape, generator=draw))
    tokens = skill_tokens_of(SKILLS)
    rarity = rarity_of(tokens)
    served = PairScorer(network.arrays() | {"rarity": rarity})
    recipe = RerankerRecipe(brief=(0.0, 0.0), others=6, easy=0)
    pairs = Lists(held, held.first, tokens, rarity, recipe).drawn([0], 0).pairs
    with torch.no_grad():
        trained = network(pairs).numpy()
    told = served.scores(held.texts[0], [tokens.of(row) for row in range(len(SKILLS))], 96)
    assert told[int(held.gold[0])] == pytest.approx(trained[0], abs=0.1)
    assert np.ptp(told) > 0.2


def test_the_command_writes_weights_and_tells_how_well_the_held_out_fold_does(
    request_files: tuple[Path, Path], minilm_export: Export, held: Requests, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "weights.npz"
    fold = str(held.folds[0])
    fit = tmp_path / "fit.json"
    shutil.copy(FIT, fit)
    given = [str(minilm_export.folder), *map(str, request_files), "--work", str(tmp_path / "work")]
    given += ["--out", str(out), "--fit", str(fit), "--epochs", "1"]
    monkeypatch.setattr("sys.argv", ["reranker", *given, "--fold", fold])
    reranker.main()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["rerank"] for line in told} == {"fast", "best"}
    assert {"short", NEAR} < set(told[1])
    assert {"short", FOREIGN} <= set(told[0]["fit"])
    fitted = json.loads(fit.read_text("utf-8"))
    assert fitted["weights"] == json.loads(FIT.read_text("utf-8"))["weights"]
    assert {name: len(own["weights"]) for name, own in fitted["reading"].items()} == {"fast": 5, "best": 5}
    with np.load(out) as arrays:
        assert {"head.w", "head.b", "rarity"} < set(arrays.files)


TOKENS = skill_tokens_of(SKILLS)
TWO_SIDES = RetrieverRecipe(rank=4, epochs=6, batch=3, drawn=1.0)
BODIES = np.zeros((len(SKILLS), 384), dtype=np.float32)
_NOBODY = -2  # a fold that no request is in


def test_groups_hold_each_request_once_its_skill_and_none_that_may_serve_beside(held: Requests) -> None:
    groups = Teaching(held, TOKENS, BODIES, TWO_SIDES, _NOBODY).batches()
    rows = [row for group in groups for row in group.rows.tolist()]
    assert len(rows) == len(set(rows))
    assert not np.isin(held.kinds[rows], [NEAR, FOREIGN]).any()
    for group in groups:
        gold = held.gold[group.rows].tolist()
        assert set(gold) <= set(group.skills)
        for row in group.near:
            assert held.kinds[row] == NEAR
            assert held.gold[row] in gold


def test_of_a_fold_that_is_held_out_a_retriever_learns_nothing(held: Requests) -> None:
    fold = int(held.folds[0])
    groups = Teaching(held, TOKENS, BODIES, TWO_SIDES, fold).batches()
    taught = np.concatenate([rows for group in groups for rows in (group.rows, group.near)])
    assert len(taught)
    assert fold not in held.folds[taught]


def test_requests_that_a_skill_does_not_serve_move_away_from_it(held: Requests) -> None:
    teaching = Teaching(held, TOKENS, BODIES, TWO_SIDES, _NOBODY)
    group = next(group for group in teaching.batches() if len(group.near))
    network = TwoSides(4, 0)
    with_near, without = (teaching.loss(network, g) for g in (group, group._replace(near=group.near[:0])))
    assert float(with_near.detach()) > float(without.detach())


def test_what_is_learned_is_served_and_is_the_same_each_time(held: Requests) -> None:
    short = replace(TWO_SIDES, epochs=1)
    one, again = (train_retriever(held, TOKENS, short, _NOBODY) for _ in range(2))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    one = train_retriever(held, TOKENS, TWO_SIDES, _NOBODY)
    served = np.flatnonzero(~np.isin(held.kinds, [NEAR, FOREIGN]))
    told = found_alone(held, served, Retriever(one), TOKENS)
    assert told["short"][0] > 0.7
    assert told["short"][1] == 1


def test_the_command_of_the_retriever_writes_weights_and_tells_how_well_the_held_out_fold_does(
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
