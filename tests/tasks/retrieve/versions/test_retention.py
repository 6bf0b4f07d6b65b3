"""Retention: which versions, vectors and files stay, what compaction makes, and what builds go on from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import numpy as np
import pytest

from storage.errors import StorageError
from storage.lance.served import Served, published_versions, write_served
from storage.lance.tables import NODES
from storage.lance.tables import SKILLS as SKILLS_TABLE
from storage.lance.versions import tag, tagged
from storage.state import nodes_table
from storage.vectors import StateStore, VectorStore, state_stores, text_hash, vector_stores
from tasks.models.cached_encoder import KeptEncoder, kept_states, vectors_of
from tasks.retrieve.index.build import Built
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import publish, roll_back
from tasks.retrieve.versions.retention import (
    bound_vectors,
    check_compacted,
    clean_tables,
    compact_tables,
    retain_versions,
    table_files,
    texts_in_use,
)
from tests.support.roots.hand_written import BEES, BREAD, SKILLS, skill
from tests.support.roots.skill_root import CountingEncoder, Make, SkillRoot
from tests.support.roots.tables import in_step
from tests.support.roots.vendor import connect, open_at


def keeping(root: SkillRoot) -> tuple[CountingEncoder, VectorStore]:
    """Have a root keep its vectors as the flows do; return the encoder that counts, and what is kept."""
    counting, store = root.encoder, vectors_of(root.root, root.encoder.card)
    root.__dict__["encoder"] = KeptEncoder(counting, root.root)
    return counting, store


def held(store: VectorStore, *texts: str) -> list[bool]:
    found: list[bool] = store.find([text_hash(text) for text in texts])[0].tolist()
    return found


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


def node_rows_of(root: SkillRoot, version: int) -> list[dict[str, object]]:
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
    assert node_rows_of(scattered, built.nodes) == node_rows_of(scattered, served.nodes)
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


def test_what_is_compact_already_makes_no_new_version(root: SkillRoot) -> None:
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


def nights(root: SkillRoot, count: int) -> list[Served]:
    """Publish on so many nights, each with another number of minutes in it; return what was served."""
    found = []
    for night in range(count):
        root.write("bread", BREAD.replace("for ten minutes", f"for {night + 11} minutes"))
        root.publish()
        found.append(root.served())
    return found


def tags(root: SkillRoot, table: str) -> set[str]:
    return set(connect(root.root).open_table(table).tags.list())


def page_of(root: SkillRoot) -> str:
    asked = root.ask().page("local/market/bread", "how long to knead the dough", budget=1, method="facets")
    return str(asked["context"])


def test_what_is_served_stays_however_old_it_is(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    published = nights(root, 4)
    roll_back(root.root, published[0].version)
    gone = retain_versions(root.root, 1, now=root.now + timedelta(days=2))
    assert gone == [v.version for v in (published[2], published[1])]
    assert "11 minutes" in page_of(root)


def test_what_was_published_within_a_day_stays_for_readers_that_hold_it(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    published = nights(root, 3)
    gone = retain_versions(root.root, 1, now=published[1].published_at + timedelta(hours=23))
    assert gone == [published[0].version]
    gone = retain_versions(root.root, 1, now=published[1].published_at + timedelta(hours=25))
    assert gone == [published[1].version]


def test_learned_skills_that_are_published_often_do_not_take_the_way_back_from_a_night(
    skill_root: Make,
) -> None:
    root = skill_root({"bread": BREAD})
    first, second = nights(root, 2)
    for n in range(1, 4):
        learned = f"v-learned-{n}"
        write_served(root.root, replace(second, version=learned, run_id=learned[2:], order=second.order + n))
    gone = retain_versions(root.root, 2, now=root.now + timedelta(days=9))
    assert (gone, first in published_versions(root.root)) == (["v-learned-1", second.version], True)


def test_a_prune_that_was_killed_is_finished_by_the_next(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    published = nights(root, 3)
    connect(root.root).open_table(SKILLS_TABLE).tags.delete(published[0].version)
    gone = retain_versions(root.root, 2, now=root.now + timedelta(days=2))
    assert gone == [published[0].version]
    assert published[0].version not in tags(root, NODES)


def test_a_published_version_that_its_table_lacks_is_told_and_nothing_goes(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    nights(root, 3)
    record = f"state/published/{root.served().version}.json"
    root.root.write_json(record, {**(root.root.read_json(record) or {}), "skills": 999})
    with pytest.raises(StorageError, match="lacks version 999"):
        retain_versions(root.root, 1, now=root.now + timedelta(days=2))
    assert len(published_versions(root.root)) == 3


def other_bread_and_back(root: SkillRoot, *, between: Callable[[], object]) -> Built:
    """Publish other bread, which `between` undoes one way or another, then the bread of before."""
    root.write("bread", skill("bread", "Bakes", "Buy a loaf."))
    between()
    root.write("bread", BREAD)
    return root.publish()


@pytest.fixture
def left_for_later(skill_root: Make) -> SkillRoot:
    """Serves skills, bees changed, whose nodes were left for later; before that it served nodes."""
    root = skill_root(SKILLS)
    root.publish()
    root.write("bees", skill("bees", "Keeps bees", "Open the hive in May."))
    root.publish(nodes=False)
    return root


@pytest.mark.slow
def test_nodes_of_a_publication_that_was_killed_are_not_gone_on_from(
    left_for_later: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_after_its_tags() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                "tasks.retrieve.versions.publish.prepare_routing", Mock(side_effect=KeyboardInterrupt)
            )
            left_for_later.crawl()
            left_for_later.parse()
            with pytest.raises(KeyboardInterrupt):
                left_for_later.index()

    built = other_bread_and_back(left_for_later, between=killed_after_its_tags)
    assert in_step(left_for_later, built)
    left_for_later.ask().page("local/market/bread", "when to bake", budget=1, method="facets")


@pytest.mark.slow
def test_nodes_of_a_version_that_was_gone_back_from_are_not_gone_on_from(left_for_later: SkillRoot) -> None:
    before = left_for_later.served().version

    def published_and_rolled_back() -> None:
        left_for_later.publish()
        roll_back(left_for_later.root, before)

    built = other_bread_and_back(left_for_later, between=published_and_rolled_back)
    assert in_step(left_for_later, built)


@pytest.mark.parametrize("base", [None, 999])
def test_nodes_left_for_later_by_a_version_that_does_not_say_of_which_or_of_one_gone_are_made_anew(
    left_for_later: SkillRoot, base: int | None
) -> None:
    write_served(left_for_later.root, replace(left_for_later.served(), nodes_base=base))
    assert in_step(left_for_later, left_for_later.publish())


@pytest.mark.slow
def test_retention_keeps_the_nodes_that_were_left_for_later(left_for_later: SkillRoot) -> None:
    base = left_for_later.served().nodes_base
    for day in range(3):
        left_for_later.write("bees", skill("bees", "Keeps bees", f"Open the hive on day {day}."))
        left_for_later.publish(nodes=False)
    retain_versions(left_for_later.root, 1, now=left_for_later.now + timedelta(days=9))
    clean_tables(left_for_later.root, timedelta())
    assert left_for_later.served().nodes_base == base
    left_for_later.crawl()
    left_for_later.parse()
    left_for_later.encoder.encoded.clear()
    built = left_for_later.build()
    assert not any("dough" in text for text in left_for_later.encoder.encoded)
    assert in_step(left_for_later, built)


def test_the_next_build_takes_off_the_tag_of_a_publication_that_was_killed(root: SkillRoot) -> None:
    served = root.served()
    for name, version in ((SKILLS_TABLE, served.skills), (NODES, served.nodes or 0)):
        tag(root.root, name, "v-killed", version)
    root.publish()
    assert [set(tagged(root.root, name)) for name in (SKILLS_TABLE, NODES)] == [{served.version}] * 2
