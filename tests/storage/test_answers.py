"""What models gave, kept below the root: answers, vectors and states."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.answers import FILE, Answers, KeptAnswer, forget_answers
from storage.errors import Locked, SchemaMismatch, StorageError, Unreachable
from storage.root import Root
from storage.tombstones import Tombstone, add_tombstones
from storage.vectors import ROWS_PER_PART, StateStore, VectorStore, state_stores, text_hash, vector_stores

ANSWER = KeptAnswer("k1", "small", "classify-1", 0, '{"1": "step"}', None, 210, 9, "2026-03-01T12:00:00Z")
REFUSED = dataclasses.replace(ANSWER, key="k2", text="Sure!", rejected="no JSON in it", prompt_tokens=None)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def answers(root: Root) -> Iterator[Answers]:
    with Answers(root) as opened:
        yield opened


def files_hold(root: Root, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in root.folder.rglob("*") if path.is_file())


def test_the_first_answer_under_a_key_is_found_and_rejected_ones_apart(answers: Answers) -> None:
    answers.keep(ANSWER, ["market/bees"])
    answers.keep(REFUSED, ["market/bees"])
    answers.keep(dataclasses.replace(ANSWER, text="another"), ["market/wasps"])
    assert [answers.find(key) for key in ("k1", "k2", "K1")] == [ANSWER, REFUSED, None]
    assert (answers.kept(rejected=False), answers.kept(rejected=True)) == ([ANSWER], [REFUSED])
    assert answers.forget(lambda doc_id: doc_id == "market/wasps") == 1  # its documents add up
    assert answers.find("k1") is None
    assert answers.forget(lambda _: True) == 1


def test_answers_and_what_was_learnt_last_outlive_their_writer(root: Root) -> None:
    with Answers(root) as first:
        first.keep(ANSWER, ["market/bees"])
        first.learn("http://host|m", "response_format", "json_schema")
        first.learn("http://host|m", "response_format", "none")
    with Answers(root) as second:
        assert second.find("k1") == ANSWER
        assert second.offered("http://host|m") == {"response_format": "none"}
        assert second.offered("http://other|m") == {}


def test_forgetting_removes_the_answers_of_a_document_from_the_disk(root: Root, answers: Answers) -> None:
    for number in range(200):
        text = f"a verdict on the honey of hive {number:03d}"
        doc_id = "market/bees" if number % 2 else "market/kilns"
        answers.keep(dataclasses.replace(ANSWER, key=f"k{number}", text=text), [doc_id])
    assert files_hold(root, "hive 003")
    assert answers.forget(lambda doc_id: doc_id == "market/bees") == 100
    assert (answers.find("k1"), answers.find("k2") is None) == (None, False)
    assert not files_hold(root, "honey of hive 003")
    assert not files_hold(root, "market/bees")
    assert files_hold(root, "honey of hive 002")


def test_forgetting_below_a_root_opens_its_file_and_makes_none(root: Root) -> None:
    assert forget_answers(root, lambda _: True) == 0
    assert not root.exists(FILE)
    with Answers(root) as answers:
        answers.keep(ANSWER, ["market/bees"])
    assert forget_answers(root, lambda doc_id: doc_id == "market/bees") == 1


_KEEP_AND_DIE = """
import os, signal, sys
from storage.answers import Answers, KeptAnswer
from storage.root import Root
answers = Answers(Root(sys.argv[1]))
for number in range(50):
    answers.keep(KeptAnswer(f"k{number}", "m", "p", 0, "t", None, 1, 1, "2026"), ["d"])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_no_answer(root: Root) -> None:
    done = subprocess.run([sys.executable, "-c", _KEEP_AND_DIE, root.uri], check=False)
    assert done.returncode == -9
    with Answers(root) as answers:
        assert len(answers.kept(rejected=False)) == 50


def test_several_threads_keep_and_find_at_once(answers: Answers) -> None:
    def work(name: int) -> None:
        for number in range(20):
            key = f"{name}-{number}"
            answers.keep(dataclasses.replace(ANSWER, key=key), [key])
            assert answers.find(key) is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(answers.kept(rejected=False)) == 80


def test_a_second_process_that_writes_is_waited_for_and_named(root: Root, answers: Answers) -> None:
    other = sqlite3.connect(answers.place, isolation_level=None)
    with contextlib.closing(other), Answers(root, wait=0.05) as impatient:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked, match=r"answers\.sqlite"):
            impatient.keep(ANSWER, [])
        assert impatient.find("k1") is None
        other.execute("COMMIT")
        impatient.keep(ANSWER, [])
        assert answers.find("k1") == ANSWER


def test_a_file_that_is_newer_damaged_or_closed_says_so(root: Root) -> None:
    answers = Answers(root)
    with contextlib.closing(sqlite3.connect(answers.place)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaMismatch, match="version 99"):
        Answers(root)
    answers.close()
    with pytest.raises(StorageError, match="closed"):
        answers.find("k1")
    other = Root(root.at("other"))
    other.write(FILE, b"this is no database at all, but long enough to look like one" * 20)
    with pytest.raises(StorageError, match=r"answers\.sqlite cannot be read"):
        Answers(other)


Machine = Callable[[str], Root]


def answer(key: str) -> KeptAnswer:
    return dataclasses.replace(ANSWER, key=key, text=f"text of {key}")


@pytest.fixture
def machine(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that gives the root as this or that machine sees it."""

    def of(name: str) -> Root:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return Root(bucket)

    return of


def test_what_machines_were_answered_at_once_another_knows_and_nothing_more(machine: Machine) -> None:
    with Answers(machine("one")) as kept:
        assert kept.find("a") is None
    assert not machine("one").exists(FILE)
    with Answers(machine("one")) as one, Answers(machine("two")) as two:
        one.keep(answer("a"), ["local/m/tea"])
        one.learn("http://llm", "seed", "yes")
        two.keep(answer("b"), ["d"])
    for name in ("one", "two", "three"):
        with Answers(machine(name)) as kept:
            assert kept.kept(rejected=False) == [answer("a"), answer("b")]
            assert kept.offered("http://llm") == {"seed": "yes"}


def test_what_a_killed_process_kept_goes_up_with_the_next(machine: Machine) -> None:
    killed = Answers(machine("one"))
    killed.keep(answer("a"), ["d"])
    assert not machine("one").exists(FILE)
    with Answers(machine("two")) as kept:
        kept.keep(answer("b"), ["d"])
    for name in ("one", "two"):
        with Answers(machine(name)) as kept:
            assert {found.key for found in kept.kept(rejected=False)} == {"a", "b"}


def test_what_was_forgotten_elsewhere_does_not_come_back_from_who_held_it(machine: Machine) -> None:
    with Answers(machine("one")) as kept:
        kept.keep(answer("a"), ["local/m/tea"])
    behind = Answers(machine("one"))
    behind.keep(answer("b"), ["local/m/tea"])
    with Answers(machine("two")) as kept:
        stone = Tombstone("local/m/tea", "document", "local/m/tea")
        add_tombstones(machine("two"), [stone], datetime(2026, 1, 2, tzinfo=UTC))
        assert kept.forget(lambda doc_id: doc_id == "local/m/tea") == 1
        kept.keep(answer("c"), ["local/m/rye"])
    for name in ("one", "three"):
        with Answers(machine(name)) as kept:
            assert [found.key for found in kept.kept(rejected=False)] == ["c"]


def test_what_could_not_be_sent_to_a_bucket_is_sent_the_next_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr("storage.s3.Bucket.write_if", Mock(side_effect=Unreachable("no answer")))
        with pytest.raises(Unreachable), Answers(machine("one")) as kept:
            kept.keep(answer("a"), ["d"])
    Answers(machine("one")).close()
    with Answers(machine("two")) as kept:
        assert [found.key for found in kept.kept(rejected=False)] == ["a"]


def test_a_newer_file_of_a_bucket_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("storage.answers.SCHEMA_VERSION", 2)
        with Answers(machine("one")) as kept:
            kept.keep(answer("a"), ["d"])
    with pytest.raises(SchemaMismatch, match="schema version 2"):
        Answers(machine("two"))


def hashes(*texts: str) -> list[bytes]:
    return [text_hash(text) for text in texts]


def vectors(*firsts: float) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array([[first, 0.5] for first in firsts], dtype=np.float32)


def test_vectors_are_found_by_model_and_text_and_unknown_ones_are_not(root: Root) -> None:
    found, held = VectorStore(root, "m", 2).find(hashes("knead"))
    assert (found.tolist(), held.shape, len(VectorStore(root, "m", 2))) == ([False], (1, 2), 0)
    VectorStore(root, "m", 2).add([], vectors()[:0].reshape(0, 2))
    VectorStore(root, "m", 2).add(hashes("knead", "bake"), vectors(1, 2))
    found, held = VectorStore(root, "m", 2).find(hashes("bake", "eat", "knead", "bake"))
    assert found.tolist() == [True, False, True, True]
    assert held[:, 0].tolist() == [2, 0, 1, 2]
    assert VectorStore(root, "m", 2).find([])[1].shape == (0, 2)
    assert not VectorStore(root, "two", 2).find(hashes("knead"))[0].any()


def test_states_are_bytes_that_lie_and_are_bounded_apart_from_vectors(root: Root) -> None:
    states, kept = StateStore(root, "m", 2), VectorStore(root, "m", 2)
    states.add(hashes("knead", "rest"), np.array([b"\x01\x02", b""], dtype=object))
    kept.add(hashes("knead"), vectors(1))
    found, held = states.find(hashes("rest", "eat", "knead"))
    assert found.tolist() == [True, False, True]
    assert held.tolist() == [b"", b"", b"\x01\x02"]
    assert [store.folder for store in state_stores(root)] == ["states/m-2"]
    assert [store.folder for store in vector_stores(root)] == ["vectors/m-2"]
    assert (states.keep_only(hashes("knead", "never")), len(states), len(kept)) == (1, 1, 1)


def test_what_another_process_adds_or_drops_shows(root: Root) -> None:
    here, there = VectorStore(root, "m", 2), VectorStore(root, "m", 2)
    here.add(hashes("knead"), vectors(1))
    assert there.find(hashes("knead"))[0].all()
    there.add(hashes("bake"), vectors(2))
    assert here.find(hashes("knead", "bake"))[0].all()
    there.keep_only(hashes("bake"))
    assert here.find(hashes("knead", "bake"))[0].tolist() == [False, True]


@settings(max_examples=30)
@given(added=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=5), kept=st.sets(st.integers(0, 30)))
def test_what_is_kept_stays_as_it_is_and_all_else_goes(
    tmp_path_factory: pytest.TempPathFactory, added: list[list[int]], kept: set[int]
) -> None:
    store = VectorStore(Root(tmp_path_factory.mktemp("root")), "m", 2)
    for numbers in added:
        store.add(hashes(*map(str, numbers)), vectors(*numbers).reshape(-1, 2))
    before = len(store)
    held = {n for numbers in added for n in numbers}
    dropped = store.keep_only(hashes(*map(str, kept)))
    found, left = store.find(hashes(*map(str, range(31))))
    assert set(np.flatnonzero(found).tolist()) == held & kept
    assert left[found][:, 0].tolist() == sorted(held & kept)
    assert len(store) == before - dropped == len(held & kept)


def test_small_parts_are_joined_and_large_ones_left_alone(root: Root) -> None:
    store = VectorStore(root, "m", 2)
    many = [f"grain {i}" for i in range(ROWS_PER_PART + 5)]
    store.add(hashes(*many), np.zeros((len(many), 2), np.float32))
    store.add(hashes("bake"), vectors(1))
    large = max(root.folder.rglob("*.parquet"), key=lambda p: p.stat().st_size)
    before = large.stat().st_mtime_ns
    store.keep_only(hashes(*many, "bake"))
    assert len([*root.folder.rglob("*.parquet")]) == 2
    assert large.stat().st_mtime_ns == before
    assert len(store) == len(many) + 1


def test_a_part_holds_no_text_and_a_damaged_one_is_named_with_what_to_do(root: Root) -> None:
    VectorStore(root, "m", 2).add(hashes("sourdough"), vectors(1))
    (part,) = root.folder.rglob("*.parquet")
    assert b"sourdough" not in part.read_bytes()
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(StorageError, match=rf"{part.name} .*delete that file"):
        VectorStore(root, "m", 2).find(hashes("sourdough"))


def test_of_a_part_only_the_groups_wanted_are_decoded_and_a_damaged_one_is_named_too(root: Root) -> None:
    store, grains = VectorStore(root, "m", 2), [f"grain {number}" for number in range(600)]
    store.add(hashes(*grains), vectors(*range(600)))
    assert len(store) == 600  # its hashes are listed now
    (part,) = root.folder.rglob("*.parquet")
    data, last = bytearray(part.read_bytes()), pq.ParquetFile(part).metadata.row_group(2).column(1)
    data[last.data_page_offset + last.total_compressed_size - 1] ^= 1
    part.write_bytes(data)
    assert store.find(hashes("grain 300", "grain 2"))[1][:, 0].tolist() == [300, 2]
    with pytest.raises(StorageError, match=rf"{part.name} .*delete that file"):
        store.find(hashes("grain 599"))
