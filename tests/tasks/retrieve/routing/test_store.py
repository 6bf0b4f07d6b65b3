from __future__ import annotations

import logging
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from flows.commands.queries import open_index
from flows.settings import load_settings
from storage.lance.served import require_served
from tasks.refine import workers
from tasks.refine.workers import _submitted as submitted
from tasks.retrieve.index.build import Built
from tasks.retrieve.index.gate import few_changed
from tasks.retrieve.routing import coarse, store
from tasks.retrieve.routing.store import FOLDER, RoutingIndex, open_routing, routing_rows
from tasks.retrieve.shells import publish_tables
from tasks.retrieve.versions.doctor import examine
from tests.support.roots.hand_written import skill
from tests.support.roots.nights import Killed, dying_at
from tests.support.roots.skill_root import Make, SkillRoot

BREAD = skill("bread", "Bakes loaves", "Knead the dough and knock on the crust.")
BEES = skill("bees", "Looks after a hive", "Treat the colony with oxalic acid in winter.")
BIKE = skill("bike", "Mends bicycles", "Patch the tube with vulcanising glue.")


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    made = skill_root({"bread": BREAD, "bees": BEES})
    made.publish(nodes=False)
    return made


def opened(root: SkillRoot) -> RoutingIndex:
    return open_routing(root.root, root.served())


def folders(root: SkillRoot) -> list[str]:
    return sorted(path.name for path in Path(root.root.at(FOLDER)).iterdir())


def best(root: SkillRoot, query: str) -> str:
    return str(root.ask().search(query)["results"][0]["name"])


def night(root: SkillRoot) -> None:
    root.crawl()
    root.parse(vectors=False)
    root.index(nodes=False)


def test_a_change_is_found_and_only_it_is_read(root: SkillRoot, caplog: pytest.LogCaptureFixture) -> None:
    root.write("bees", skill("bees", "Looks after a hive", "Feed sugar syrup in October."))
    root.write("bike", BIKE)
    with caplog.at_level(logging.INFO, "tasks.retrieve.routing.store"):
        night(root)
    assert "3 skills, 2 of them read" in caplog.text
    assert (best(root, "vulcanising"), best(root, "syrup"), best(root, "crust")) == ("bike", "bees", "bread")


def require_as_made_anew(root: SkillRoot) -> None:
    folder = Path(root.root.at(FOLDER)) / f"{root.served().version}.{root.served().skills}"
    brought_up = {path.name: path.read_bytes() for path in folder.iterdir()}
    root.root.delete(FOLDER)
    store.prepare_routing(root.root, root.served())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == brought_up


def test_a_publication_killed_at_any_write_is_made_good_by_the_next_night(root: SkillRoot) -> None:
    for dies_at in (6, 14):  # in the routing index, at its card
        before = root.served()
        root.write("bike", skill("bike", "Mends bicycles", f"Patch the tube {dies_at} times."))
        root.crawl()
        root.parse(vectors=False)
        with pytest.raises(Killed), dying_at(dies_at):
            root.index(nodes=False)
        assert root.served() == before
        assert best(root, "crust") == "bread"
        night(root)
        assert few_changed(root.root, root.served().tables_at(root.root)) == []
        assert best(root, f"tube {dies_at} times") == "bike"
        assert examine(root.root) == []
    root.remove("bees")
    root.write("bread", skill("bread", "Bakes loaves", "Knead the dough twice."))
    night(root)
    require_as_made_anew(root)


@pytest.mark.slow
def test_an_index_of_many_skills_is_made_in_processes_and_is_the_same(
    skill_root: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = skill_root({"bread": BREAD, "bees": BEES, "bike": BIKE, "oven": skill("oven", "Heats", "To 220.")})
    root.publish(nodes=False)
    (folder,) = Path(root.root.at(FOLDER)).iterdir()
    made_here = {path.name: path.read_bytes() for path in folder.iterdir()}
    root.root.delete(FOLDER)
    lent: list[object] = []
    monkeypatch.setattr(store, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(workers, "_submitted", lambda *call: lent.append(call) or submitted(*call))
    store.prepare_routing(root.root, root.served(), workers=2)
    assert len(lent) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made_here


def test_a_root_from_before_is_searched_all_the_same(
    root: SkillRoot, caplog: pytest.LogCaptureFixture
) -> None:
    root.root.delete(FOLDER)
    assert best(root, "crust") == "bread"
    assert "has no routing index" in caplog.text
    assert not Path(root.root.at(FOLDER)).exists()


def test_a_folder_from_before_it_held_what_answers_say_is_filled_from_the_table(root: SkillRoot) -> None:
    (name,) = folders(root)
    kept = opened(root).rows
    root.root.delete(f"{FOLDER}/{name}/rows.arrow")
    card = root.root.read_json(f"{FOLDER}/{name}/index.json") or {}
    del card["digests"]["rows.arrow"]
    card |= {"version": 1, "doc_ids": kept["doc_id"].to_list(), "hashes": kept["content_hash"].to_list()}
    root.root.write_json(f"{FOLDER}/{name}/index.json", card)
    assert best(root, "crust") == "bread"
    assert opened(root).rows.equals(kept)
    assert kept["doc_id"].to_list() == opened(root).doc_ids
    store.prepare_routing(root.root, root.served())  # as a night does on which nothing changed
    assert root.root.exists(f"{FOLDER}/{name}/rows.arrow")
    assert opened(root).rows.equals(kept)


def test_vectors_of_other_weights_are_made_anew_and_not_asked_meanwhile(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "packaged_digest", lambda: "of another release")
    assert opened(root).learned is None
    root.write("bike", BIKE)
    night(root)
    learned = opened(root).learned
    assert learned is not None
    assert len(learned) == len(opened(root).doc_ids)


@pytest.mark.parametrize(
    ("version", "missing", "parts"),
    [
        (2, ("token_ids", "token_starts", "token_bodies", "learned"), ("learned", "reranker")),
        (3, ("learned",), ("learned",)),
    ],
)
def test_an_index_from_before_models_were_learned_answers_without_them_until_a_night(
    root: SkillRoot, version: int, missing: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    (name,) = folders(root)
    kept = opened(root)
    card = root.root.read_json(f"{FOLDER}/{name}/index.json") or {}
    for array in missing:
        root.root.delete(f"{FOLDER}/{name}/{array}.npy")
        del card["digests"][f"{array}.npy"]
    root.root.write_json(f"{FOLDER}/{name}/index.json", card | {"version": version})

    def told() -> dict[str, bool]:
        results = root.ask().search("crust of the hive", explain=True)["results"]
        return {part: any(r["parts"][part] for r in results) for part in ("learned", "reranker")}

    assert told() == {part: part not in parts for part in ("learned", "reranker")}
    store.prepare_routing(root.root, root.served())  # as a night does on which nothing changed
    tokens, learned = opened(root).tokens, opened(root).learned
    assert tokens is not None
    assert kept.tokens is not None
    assert tokens.ids.tolist() == kept.tokens.ids.tolist()
    np.testing.assert_array_equal(learned, kept.learned)
    assert all(told().values())


def test_of_many_skills_principal_axes_are_kept_and_searched_by(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scans, cosines = list[object](), coarse.Coarse.cosines
    monkeypatch.setattr(coarse.Coarse, "cosines", lambda *of: scans.append(of) or cosines(*of))

    def told(exact_rows: int) -> list[tuple[str, float]]:
        monkeypatch.setenv("SKILLERY_EXACT_ROWS", str(exact_rows))
        scans.clear()
        results = open_index(root.root, load_settings()).search("knead the crust")["results"]
        assert bool(scans) == (exact_rows < 2)
        return [(r["name"], r["score"]) for r in results]

    exact, made_now = told(2), told(1)
    assert opened(root).coarse == {}
    monkeypatch.setattr(coarse, "EXACT_ROWS", 1)
    root.root.delete(FOLDER)
    store.prepare_routing(root.root, root.served())
    assert opened(root).coarse.keys() == {"vectors", "learned"}
    for other in (made_now, told(1)):
        assert [name for name, _ in other] == [name for name, _ in exact]
        assert [score for _, score in other] == pytest.approx([score for _, score in exact], abs=1e-3)
    assert told(2) == exact
    (name,) = folders(root)
    path = Path(root.root.at(f"{FOLDER}/{name}/learned_frame.npy"))
    np.save(path, np.load(path)[1:])
    assert told(2) == exact
    assert "is damaged" in caplog.text


def test_what_is_damaged_is_named_and_search_answers_without_it(
    root: SkillRoot, caplog: pytest.LogCaptureFixture
) -> None:
    # A damaged file is named and search answers without it.
    (name,) = folders(root)
    impacts = root.root.read(f"{FOLDER}/{name}/impacts.npy")
    root.root.write(f"{FOLDER}/{name}/impacts.npy", b"no array")
    assert best(root, "crust") == "bread"
    assert "impacts.npy cannot be read" in caplog.text
    root.root.write(f"{FOLDER}/{name}/impacts.npy", impacts)
    # Damaged rows are named and search answers without them.
    path = Path(root.root.at(f"{FOLDER}/{name}/rows.arrow"))
    path.write_bytes(path.read_bytes().replace(b"Bakes loaves", b"Bakes nails."))
    assert best(root, "crust") == "bread"
    assert "rows.arrow cannot be read (it is not as it was written)" in caplog.text
    path.unlink()
    assert best(root, "crust") == "bread"
    assert "rows.arrow cannot be read ([Errno 2]" in caplog.text


def test_what_answers_say_is_read_once_while_its_file_stays(root: SkillRoot) -> None:
    (name,), served = folders(root), require_served(root.root)
    first = routing_rows(root.root, served)
    assert routing_rows(root.root, served) is first
    os.utime(root.root.at(f"{FOLDER}/{name}/rows.arrow"), ns=(0, 0))
    assert routing_rows(root.root, served) is not first


@pytest.mark.parametrize("file", ["starts", "token_starts"])
def test_an_index_whose_files_contradict_themselves_is_made_anew(
    root: SkillRoot, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    (name,) = folders(root)
    path = Path(root.root.at(f"{FOLDER}/{name}/{file}.npy"))
    starts = np.load(path)
    starts[1] = -starts[1] - 1
    np.save(path, starts if file == "starts" else starts[:-1])
    assert best(root, "crust") == "bread"
    assert "is damaged" in caplog.text


def test_numbers_that_a_disk_has_changed_do_not_go_into_the_next_version(
    root: SkillRoot, caplog: pytest.LogCaptureFixture
) -> None:
    (name,) = folders(root)
    path = Path(root.root.at(f"{FOLDER}/{name}/vectors.npy"))
    path.write_bytes(path.read_bytes()[:-4] + b"\x00\x00\x00\x7f")
    root.write("bike", BIKE)
    night(root)
    assert "vectors.npy is damaged" in caplog.text
    assert np.isfinite(opened(root).vectors).all()
    assert np.linalg.norm(opened(root).vectors, axis=1) == pytest.approx(1, abs=1e-3)


def test_files_of_versions_long_gone_are_deleted(root: SkillRoot) -> None:
    for night_of in range(3):
        root.write("bees", skill("bees", "Looks after a hive", f"Feed syrup {night_of} times in October."))
        night(root)
    assert len(folders(root)) == 3
    assert f"{root.served().version}.{root.served().skills}" in folders(root)


def test_an_index_with_the_terms_of_another_release_is_made_again_by_a_night_without_a_change(
    root: SkillRoot, caplog: pytest.LogCaptureFixture
) -> None:
    served = root.served()
    card = f"{FOLDER}/{folders(root)[0]}/index.json"
    now = root.root.read_json(card)
    assert now
    root.root.write_json(card, {**now, "terms": now["terms"] - 1})
    same = Built(served.skills, served.nodes, 2, 0, 0, changed=False)
    publish_tables.fn(root.root.uri, asdict(same), [], "", run_id="quiet", now=datetime.now(UTC))
    assert root.served() == served
    assert root.root.read_json(card) == now
    assert best(root, "crust") == "bread"
    assert "has no routing index" not in caplog.text
