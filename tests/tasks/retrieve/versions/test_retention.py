from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from storage.state import nodes_table
from storage.vectors import StateStore, VectorStore, state_stores, text_hash, vector_stores
from tasks.models.cached_encoder import KeptEncoder, kept_states, vectors_of
from tasks.parse.classify.cascade import CACHED_PROBABILITIES, cached_probabilities
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.retention import bound_vectors, texts_in_use
from tests.support.roots.hand_written import BEES, BREAD, SKILLS
from tests.support.roots.skill_root import CountingEncoder, SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]


class OtherRules(LocalClassifier):
    name = "rules-of-tomorrow"


def keeping(root: SkillRoot) -> tuple[CountingEncoder, VectorStore]:
    """Have a root keep its vectors as the flows do; return the encoder that counts, and what is kept."""
    counting, store = root.encoder, vectors_of(root.root, root.encoder.card)
    root.__dict__["encoder"] = KeptEncoder(counting, root.root)
    return counting, store


def held(store: VectorStore, *texts: str) -> list[bool]:
    found: list[bool] = store.find([text_hash(text) for text in texts])[0].tolist()
    return found


def test_a_night_encodes_each_text_of_the_corpus_once(skill_root: Make) -> None:
    root = skill_root({**SKILLS, "bees-again": BEES.replace("name: bees", "name: bees again")})
    counting, store = keeping(root)

    root.publish()

    assert len(counting.encoded) == len(set(counting.encoded)) == len(store)
    assert {text_hash(text) for text in counting.encoded} == texts_in_use(root.root)


def test_another_classifier_types_anew_and_encodes_nothing(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    counting, _ = keeping(root)
    root.publish()
    counting.encoded.clear()

    done = root.parse(classifier=OtherRules())
    root.index()

    assert done["documents"] == 4
    assert counting.encoded == []


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


def test_a_few_unused_vectors_are_left_for_the_night_they_are_wanted(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    counting, store = keeping(root)
    root.publish()
    store.add([text_hash("old")], np.zeros((1, 384), np.float32))

    assert bound_vectors(root.root, counting.card) == 0
    assert held(store, "old") == [True]


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


def test_a_publication_drops_looks_of_another_model_and_all_where_more_are_kept_than_nodes(
    skill_root: Make,
) -> None:
    root = skill_root({"bees": BEES})
    other, looks = VectorStore(root.root, "another", 6, CACHED_PROBABILITIES), cached_probabilities(root.root)
    row = np.zeros((1, 6), np.float32)
    looks.add([text_hash("seen")], row)
    other.add([text_hash("seen")], row)

    root.publish()

    assert (held(looks, "seen"), held(other, "seen")) == ([True], [False])

    many = [text_hash(str(n)) for n in range(1_000)]
    looks.add(many, np.repeat(row, len(many), axis=0))
    root.write("bread", BREAD)
    root.publish()

    assert root.root.files(CACHED_PROBABILITIES) == []


def test_forgetting_leaves_no_look(skill_root: Make) -> None:
    root = skill_root({"bees": BEES, "bread": BREAD})
    root.publish()
    cached_probabilities(root.root).add([text_hash("seen")], np.zeros((1, 6), np.float32))

    forget(root.root, "local/market/bees", run_id="gone", now=root.now)

    assert root.root.files(CACHED_PROBABILITIES) == []
