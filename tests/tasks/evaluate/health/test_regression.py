"""The gate compares a version with the one served, leg by leg: a worse model is refused, the same is not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage.lance.served import Served
from storage.usage import UsageLog
from tasks.evaluate.health import regression
from tasks.evaluate.health.regression import check_regression
from tasks.models.protocols import IndexEncoder, Vectors
from tasks.retrieve.index.build import build
from tasks.retrieve.index.gate import Check
from tasks.retrieve.routing.store import FOLDER, prepare_routing
from tasks.retrieve.versions.publish import candidate
from tests.support.roots.many_skills import many_skills
from tests.support.roots.skill_root import CountingEncoder, Export, SkillRoot
from tests.support.roots.vendor import connect, rewritten

Make = Callable[[dict[str, str]], SkillRoot]
LEGS = {f"probes.{leg}_loss" for leg in ("dense", "lexical", "fused", "nodes")}
ASKED = "probes.asked"


class OtherSeed(CountingEncoder):
    """An encoder as of other weights: each text has a vector that says nothing of its meaning."""

    def __init__(self, like: CountingEncoder, folder: Export) -> None:
        super().__init__(folder.folder)
        self.card = {**like.card, "revision": "other-seed"}

    def encode(self, texts: Sequence[str]) -> Vectors:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
        drawn = np.array([np.random.default_rng(s).normal(size=384) for s in seeds], dtype=np.float32)
        drawn = drawn.reshape(len(texts), 384)
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


@pytest.fixture(scope="module")
def trades(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root that serves 24 skills; tests build versions beside what it serves, and publish none."""
    folder = tmp_path_factory.mktemp("trades")
    root = SkillRoot(folder / "market", folder / "root", minilm_export.folder)
    for name, text in many_skills(24).items():
        root.write(name, text)
    root.publish()
    return root


def built_with(root: SkillRoot, encoder: IndexEncoder, *, nodes: bool = True) -> Served:
    built = build(root.root, encoder=encoder, with_nodes=nodes, anew=True)
    return candidate(root.root, built, card=encoder.card, path=root.model, run_id="next", now=root.now)


@pytest.fixture(scope="module")
def again(trades: SkillRoot) -> Served:
    """The same as is served, built anew."""
    return built_with(trades, trades.encoder)


def checks(root: SkillRoot, new: Served, encoder: IndexEncoder, max_loss: float = 0.02) -> list[Check]:
    """Return the checks of the legs; the one of how many probes were asked is told of once, and passes."""
    asked, *legs = check_regression(root.root, new, encoder=encoder, count=30, max_loss=max_loss)
    assert (asked.check, asked.passed, asked.value >= 10) == (ASKED, True, bool(legs))
    return legs


def test_a_model_of_another_seed_is_refused_by_what_it_makes_and_by_how_much(
    trades: SkillRoot, minilm_export: Export
) -> None:
    other = OtherSeed(trades.encoder, minilm_export)
    new = built_with(trades, other)
    found = checks(trades, new, other)
    failed = {c.check: c for c in found if not c.passed}
    assert {c.check for c in found} == LEGS
    assert "probes.lexical_loss" not in failed
    assert failed["probes.dense_loss"].value > 0.3 > failed["probes.dense_loss"].limit
    assert not any("v-next" in file for file in trades.root.files(FOLDER))
    # What a worse model may lose is a setting.
    assert all(c.passed for c in checks(trades, new, other, max_loss=1.0))


def test_a_good_model_of_another_name_is_let_through(trades: SkillRoot, again: Served) -> None:
    new = replace(again, model={"name": "as-good", "path": trades.model})
    found = checks(trades, replace(new, model={**trades.served().model, "revision": "2"}), trades.encoder)
    assert [(c.check, c.value, c.passed) for c in found] == [(c.check, 0.0, True) for c in found]
    assert {c.check for c in found} == LEGS


def test_building_the_same_again_does_not_trip_the_gate(trades: SkillRoot, again: Served) -> None:
    found = checks(trades, again, trades.encoder)
    assert [(c.value, c.passed) for c in found] == [(0.0, True)] * len(LEGS)


@pytest.mark.slow
def test_a_corpus_may_grow_and_change_without_its_old_skills_counting_as_worse(skill_root: Make) -> None:
    root = skill_root(many_skills(12))
    root.publish()
    for name, text in many_skills(30).items():
        root.write(name, text)
    changed = next(iter(many_skills(1)))
    root.write(changed, many_skills(1, edition="second")[changed])
    root.crawl()
    root.parse()
    found = checks(root, built_with(root, root.encoder), root.encoder)
    assert {c.check for c in found} == LEGS
    assert all(c.passed for c in found)
    assert {c.value for c in found if c.check in ("probes.dense_loss", "probes.nodes_loss")} == {0.0}


@pytest.mark.slow
def test_a_model_of_another_seed_is_refused_also_where_every_text_has_changed_a_little(
    skill_root: Make, minilm_export: Export
) -> None:
    root = skill_root(many_skills(15))
    root.publish()
    for name, text in many_skills(15).items():
        root.write(name, f"{text}\nPut everything back afterwards.\n")
    root.crawl()
    root.parse()
    other = OtherSeed(root.encoder, minilm_export)
    found = checks(root, built_with(root, other), other)
    assert not {c.check: c for c in found}["probes.dense_loss"].passed


def test_where_no_nodes_are_built_the_other_legs_are_compared(trades: SkillRoot) -> None:
    found = checks(trades, built_with(trades, trades.encoder, nodes=False), trades.encoder)
    assert {c.check for c in found} == LEGS - {"probes.nodes_loss"}


@pytest.mark.slow
def test_a_few_probes_prove_nothing_and_a_first_version_has_nothing_to_be_worse_than(
    skill_root: Make,
) -> None:
    root = skill_root(many_skills(9))
    root.crawl()
    root.parse()
    assert (
        check_regression(
            root.root, built_with(root, root.encoder), encoder=root.encoder, count=30, max_loss=0.0
        )
        == []
    )
    root.index()
    assert checks(root, built_with(root, root.encoder), root.encoder) == []


def test_where_few_skills_changed_rows_are_asked_for_few_probes_and_in_disorder_are_still_refused(
    skill_root: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression, "_ASKED", 12)
    asked_of: dict[str, int] = {}
    real = regression._check

    def noted(leg: str, new: list[float], old: list[float], max_loss: float) -> Check:
        asked_of[leg] = len(new)
        return real(leg, new, old, max_loss)

    monkeypatch.setattr(regression, "_check", noted)
    root = skill_root(many_skills(24))
    root.publish()
    changed = next(iter(many_skills(1)))
    root.write(changed, many_skills(1, edition="second")[changed])
    root.crawl()
    root.parse()
    new = candidate(
        root.root, root.build(), card=root.encoder.card, path=root.model, run_id="next", now=root.now
    )
    given = {"encoder": root.encoder, "count": 30, "max_loss": 0.02}
    asked, *legs = check_regression(root.root, new, **given)
    assert (asked.value > 12, {c.check for c in legs}, all(c.passed for c in legs)) == (True, LEGS, True)
    assert asked_of == {"dense": 12, "nodes": 12, "lexical": asked.value, "fused": asked.value}
    table = connect(root.root).open_table("skills")
    rewritten(lambda vectors: np.roll(vectors, 1, axis=0))(table)
    failed = [
        c for c in check_regression(root.root, replace(new, skills=table.version), **given) if not c.passed
    ]
    assert "probes.dense_loss" in {c.check for c in failed}
    card = f"{FOLDER}/{root.served().version}.{root.served().skills}/index.json"
    root.root.write_json(card, {**(root.root.read_json(card) or {}), "version": 3})  # of an earlier release
    asked, *_ = check_regression(root.root, new, **given)
    assert set(asked_of.values()) == {asked.value}


@pytest.mark.slow
def test_a_learned_leg_that_what_is_served_lacks_is_no_ground_to_refuse(trades: SkillRoot) -> None:
    new = built_with(trades, trades.encoder)
    prepare_routing(trades.root, new)
    made, served = (f"{FOLDER}/{v.version}.{v.skills}" for v in (new, trades.served()))
    file = Path(trades.root.at(f"{made}/learned.npy"))
    np.save(file, np.roll(np.load(file), 1, axis=0))  # each skill is taken for another
    card = f"{served}/index.json"
    kept = trades.root.read_json(card) or {}

    def lost() -> dict[str, float]:
        return {check.check: check.value for check in checks(trades, new, trades.encoder) if check.value}

    trades.root.write_json(card, kept | {"version": 3})
    assert lost() == {}
    trades.root.write_json(card, kept)
    found = lost()
    assert set(found) == {"probes.fused_loss"}
    assert found["probes.fused_loss"] > 0.1


def test_what_people_asked_of_late_is_asked_of_both_versions(trades: SkillRoot, again: Served) -> None:
    log = UsageLog(trades.root, "texts", str)
    for name in many_skills(24):
        log.note("http", "search", [f"local/market/{name}"], query=f"what about {name}?", fits=True)
    log.flush()
    try:
        found = {c.check: c for c in checks(trades, again, trades.encoder)}
    finally:
        trades.root.delete("usage")
    assert found.keys() == LEGS | {"probes.logged_loss"}
    assert (found["probes.logged_loss"].value, found["probes.logged_loss"].passed) == (0.0, True)
