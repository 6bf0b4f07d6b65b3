from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from storage.lance.tables import NODES
from storage.state import nodes_table
from storage.vectors import StateStore, VectorStore, state_stores, text_hash, vector_stores
from tasks.models.cached_encoder import KeptEncoder, kept_states, vectors_of
from tasks.retrieve.index.build import Built
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import publish
from tasks.retrieve.versions.retention import (
    bound_vectors,
    check_compacted,
    clean_tables,
    compact_tables,
    retain_versions,
    table_files,
    texts_in_use,
)
from tests.support.roots.hand_written import BEES, BREAD, SKILLS
from tests.support.roots.skill_root import CountingEncoder, SkillRoot
from tests.support.roots.vendor import connect, open_at

Make = Callable[[dict[str, str]], SkillRoot]


def keeping(root: SkillRoot) -> tuple[CountingEncoder, VectorStore]:
    """Have a root keep its vectors as the flows do; return the encoder that counts, and what is kept."""
    counting, store = root.encoder, vectors_of(root.root, root.encoder.card)
    root.__dict__["encoder"] = KeptEncoder(counting, root.root)
    return counting, store


def held(store: VectorStore, *texts: str) -> list[bool]:
    found: list[bool] = store.find([text_hash(text) for text in texts])[0].tolist()
    return found


@pytest.mark.slow
def test_a_night_encodes_each_text_of_the_corpus_once(skill_root: Make) -> None:
    root = skill_root({**SKILLS, "bees-again": BEES.replace("name: bees", "name: bees again")})
    counting, store = keeping(root)
    root.publish()
    assert len(counting.encoded) == len(set(counting.encoded)) == len(store)
    assert {text_hash(text) for text in counting.encoded} == texts_in_use(root.root)


@pytest.mark.slow
def test_a_text_that_moves_to_another_skill_keeps_its_vector(skill_root: Make) -> None:
    root = skill_root({"bees": BEES})
    counting, _ = keeping(root)
    root.publish()
    counting.encoded.clear()
    root.remove("bees")
    root.write("hives", BEES.replace("name: bees", "name: hives"))
    root.publish()
    assert [text.splitlines()[0] for text in counting.encoded] == ["hives"]


def test_a_publication_bounds_what_is_kept(skill_root: Make) -> None:
    root = skill_root({"bees": BEES, "bread": BREAD})
    counting, store = keeping(root)
    root.publish()
    of_bees = set(nodes_table(root.root).read().filter(doc_id="local/market/bees")["text"])
    for k in range(30):
        store.add([text_hash(f"old {k}")], np.zeros((1, 384), np.float32))
    VectorStore(root.root, "another", 2).add([text_hash("x")], np.zeros((1, 2), np.float32))
    states = kept_states(root.root, counting.card)
    for k in range(30):
        states.add([text_hash(f"old {k}")], np.array([b"old"], dtype=object))
    StateStore(root.root, "another", 2).add([text_hash("x")], np.array([b"x"], dtype=object))
    root.remove("bees")
    root.write("bread", BREAD + "\nFreeze the second loaf in slices.\n")
    root.publish()
    assert held(store, "old 0", "old 29", *of_bees) == [False] * (2 + len(of_bees))
    assert held(store, "Freeze the second loaf in slices.") == [True]
    assert {text_hash(t) for t in counting.encoded} >= texts_in_use(root.root)
    assert [s.folder for s in vector_stores(root.root)] == [store.folder]
    assert [s.folder for s in state_stores(root.root)] == [states.folder]
    assert held(states, "old 0", "old 29", *of_bees) == [False] * (2 + len(of_bees))
    assert held(states, "Freeze the second loaf in slices.") == [True]


@pytest.mark.parametrize("damaged", [b"{", pytest.param(b"\xff", marks=pytest.mark.slow)])
def test_a_few_unused_vectors_are_left_but_where_a_seal_is_damaged_the_texts_themselves_tell_which_are_used(
    damaged: bytes, skill_root: Make
) -> None:
    root = skill_root(SKILLS)
    counting, store = keeping(root)
    root.publish()
    store.add([text_hash("old")], np.zeros((1, 384), np.float32))
    assert (bound_vectors(root.root, counting.card), held(store, "old")) == (0, [True])
    for table in ("nodes", "documents"):
        root.root.write(root.root.files(f"state/manifests/{table}", ".json")[0], damaged)
    assert bound_vectors(root.root, counting.card) == 1
    used = nodes_table(root.root).read()["text"].to_list()
    assert held(store, "old", *used) == [False, *[True] * len(used)]


def test_forgetting_leaves_no_vector_of_what_only_the_forgotten_text_said(skill_root: Make) -> None:
    shared = "\nWash your hands.\n"
    root = skill_root({"bees": BEES + shared, "bread": BREAD + shared})
    counting, store = keeping(root)
    root.publish()
    gone = set(nodes_table(root.root).read().filter(doc_id="local/market/bees")["text"]) - {
        "Wash your hands."
    }
    store.add([text_hash("what an older version said")], np.zeros((1, 384), np.float32))
    states = kept_states(root.root, counting.card)
    states.add([text_hash("what an older version said")], np.array([b"older"], dtype=object))
    report = forget(root.root, "local/market/bees", run_id="gone", now=root.now)
    assert held(store, "what an older version said", *gone) == [False] * (1 + len(gone))
    assert held(states, "what an older version said", *gone) == [False] * (1 + len(gone))
    assert held(store, "Wash your hands.") == held(states, "Wash your hands.") == [True]
    assert report.removed["vectors"] == len(gone) + 2
    counting.encoded.clear()
    root.publish()
    assert counting.encoded == []


def test_where_the_corpus_cannot_be_read_no_vector_outlives_forgetting(skill_root: Make) -> None:
    root = skill_root({"bees": BEES, "bread": BREAD})
    _, store = keeping(root)
    root.publish()
    (damaged, *_) = (root.root.folder / "nodes").glob("*.parquet")
    damaged.write_bytes(b"no table")
    with pytest.raises(Exception, match="cannot be read as Parquet"):
        forget(root.root, "local/market/bees", run_id="gone", now=root.now)
    assert len(store) == len(kept_states(root.root, root.encoder.card)) == 0


def test_second_looks_of_an_earlier_version_go_with_a_publication_and_with_what_is_forgotten(
    skill_root: Make,
) -> None:
    root = skill_root({"bees": BEES, "bread": BREAD})
    root.root.write_json("state/looks/old/a.json", {})
    root.publish()
    assert root.root.files("state/looks") == []
    root.root.write_json("state/looks/old/a.json", {})
    forget(root.root, "local/market/bees", run_id="gone", now=root.now)
    assert root.root.files("state/looks") == []


@pytest.fixture
def scattered(skill_root: Make, monkeypatch: pytest.MonkeyPatch) -> SkillRoot:
    """Return a root whose tables lie in several files, as if nothing had been compacted when published."""
    root = skill_root(SKILLS)
    with monkeypatch.context() as patched:
        patched.setattr("storage.lance.tables.make_indices", lambda *_: None)
        for name in ("tea", "bread", "bees"):
            root.write(name, SKILLS[name] + "\nWash your hands afterwards.\n")
            root.crawl()
            root.parse()
            built, card = root.build(), root.encoder.card
            publish(root.root, built, card=card, path=root.model, run_id=root.run_id, now=root.now)
    return root


def rows(root: SkillRoot, version: int) -> list[dict[str, object]]:
    table = open_at(connect(root.root), NODES, version)
    return sorted(table.search().to_arrow().to_pylist(), key=lambda row: str(row["node_id"]))


def test_small_files_become_one_with_the_same_rows_all_indexed_and_a_row_lost_or_changed_is_refused(
    scattered: SkillRoot,
) -> None:
    served = scattered.served()
    assert served.nodes is not None
    built, tables = compact_tables(scattered.root)
    assert built.changed
    assert built.nodes is not None
    assert [t.files_before > t.files_after == 1 for t in tables] == [True, True]
    assert all(check.passed for check in check_compacted(scattered.root, built))
    assert rows(scattered, built.nodes) == rows(scattered, served.nodes)
    assert scattered.served() == served
    indices = open_at(connect(scattered.root), "skills", built.skills).list_indices()
    assert {column for index in indices for column in index.columns} == {"doc_id", "doc_key"}
    assert [index.num_unindexed_rows for index in indices] == [0, 0]
    table = connect(scattered.root).open_table(NODES)
    table.delete("node_id = 'local/market/tea#0'")
    table.update(where="node_id = 'local/market/bees#0'", values={"text": "Let the bees be."})
    spoilt = Built(built.skills, int(table.version), built.skills_rows, built.nodes_rows, 0, changed=True)
    checks = {check.check: check for check in check_compacted(scattered.root, spoilt)}
    assert not checks["nodes.rows_that_differ"].passed
    assert checks["nodes.rows_that_differ"].value == 2
    assert checks["skills.rows_that_differ"].passed


def test_what_is_compact_already_makes_no_new_version(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish()
    served, files = root.served(), table_files(root.root)
    built, tables = compact_tables(root.root)
    assert table_files(root.root) == files
    assert (built.changed, built.skills, built.nodes) == (False, served.skills, served.nodes)
    assert [(t.files_before, t.files_after) for t in tables] == [(1, 1), (1, 1)]
    assert check_compacted(root.root, built) == []


def test_files_that_no_published_version_needs_go_and_answers_stay(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    margin = timedelta(seconds=0.4)
    for hours in (1, 2):
        root.write("bread", f"{SKILLS['bread']}\nLet it cool for {hours} hours.\n")
        root.publish()
    time.sleep(2 * margin.total_seconds())
    root.write("bread", f"{SKILLS['bread']}\nLet it cool for a night.\n")
    root.publish()
    answer = root.ask().search("how long does dough rise")["results"]
    retain_versions(root.root, 1, now=root.now + timedelta(days=30))
    before = table_files(root.root)
    clean_tables(root.root, margin)
    assert table_files(root.root) < before
    assert root.ask().search("how long does dough rise")["results"] == answer
