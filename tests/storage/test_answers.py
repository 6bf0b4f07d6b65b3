from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.answers import FILE, Answers, KeptAnswer, forget_answers
from storage.errors import Locked, SchemaMismatch, StorageError
from storage.root import Root
from storage.tombstones import Tombstone, add_tombstones

ANSWER = KeptAnswer(
    "k1", "small-model", "classify-1", 0, '{"1": "step"}', None, 210, 9, "2026-03-01T12:00:00Z"
)
REFUSED = dataclasses.replace(
    ANSWER, key="k2", text="Sure!", rejected="no JSON in the answer", prompt_tokens=None
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def answers(root: Root) -> Iterator[Answers]:
    with Answers(root) as opened:
        yield opened


def files_hold(root: Root, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in root.folder.rglob("*") if path.is_file())


def test_an_answer_is_found_by_its_key_alone_and_as_it_was(answers: Answers) -> None:
    answers.keep(ANSWER, ["market/bees"])
    answers.keep(REFUSED, ["market/bees"])
    assert answers.find("k1") == ANSWER
    assert answers.find("k2") == REFUSED
    assert answers.find("K1") is None


def test_the_first_answer_under_a_key_stays_and_documents_add_up(root: Root, answers: Answers) -> None:
    answers.keep(ANSWER, ["market/bees"])
    answers.keep(dataclasses.replace(ANSWER, text="another"), ["market/wasps"])
    assert answers.find("k1") == ANSWER
    assert answers.forget(lambda doc_id: doc_id == "market/wasps") == 1


def test_rejected_answers_are_kept_apart_for_reading(answers: Answers) -> None:
    answers.keep(ANSWER, [])
    answers.keep(REFUSED, [])
    assert answers.kept(rejected=True) == [REFUSED]
    assert answers.kept(rejected=False) == [ANSWER]


def test_answers_outlive_their_writer(root: Root) -> None:
    with Answers(root) as first:
        first.keep(ANSWER, ["market/bees"])
        first.learn("http://host|m", "response_format", "none")
    with Answers(root) as second:
        assert second.find("k1") == ANSWER
        assert second.offered("http://host|m") == {"response_format": "none"}
        assert second.offered("http://other|m") == {}


def test_what_is_learnt_later_counts(answers: Answers) -> None:
    answers.learn("e", "response_format", "json_schema")
    answers.learn("e", "response_format", "none")
    assert answers.offered("e") == {"response_format": "none"}


def test_forgetting_removes_the_answers_of_a_document_from_the_disk(root: Root, answers: Answers) -> None:
    for number in range(200):
        text = f"a verdict on the honey of hive {number:03d}"
        doc_id = "market/bees" if number % 2 else "market/kilns"
        answers.keep(dataclasses.replace(ANSWER, key=f"k{number}", text=text), [doc_id])
    assert files_hold(root, "hive 003")
    assert answers.forget(lambda doc_id: doc_id == "market/bees") == 100
    assert answers.find("k1") is None
    assert answers.find("k2") is not None
    assert not files_hold(root, "honey of hive 003")
    assert not files_hold(root, "market/bees")
    assert files_hold(root, "honey of hive 002")


def test_an_answer_about_two_documents_goes_with_either(answers: Answers) -> None:
    answers.keep(ANSWER, ["market/bees", "market/kilns"])
    assert answers.forget(lambda doc_id: doc_id == "market/kilns") == 1
    assert answers.find("k1") is None
    assert answers.forget(lambda _: True) == 0


def test_forgetting_makes_no_file_where_there_is_none(root: Root) -> None:
    assert forget_answers(root, lambda _: True) == 0
    assert not root.exists(FILE)


def test_forgetting_below_a_root_opens_its_file(root: Root) -> None:
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

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


def test_a_file_of_a_newer_version_is_refused(root: Root, answers: Answers) -> None:
    with contextlib.closing(sqlite3.connect(answers.place)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaMismatch, match="version 99"):
        Answers(root)


def test_a_damaged_file_is_named(root: Root) -> None:
    root.write(FILE, b"this is no database at all, but long enough to look like one" * 20)
    with pytest.raises(StorageError, match=r"answers\.sqlite cannot be read"):
        Answers(root)


def test_what_is_closed_says_so(root: Root) -> None:
    answers = Answers(root)
    answers.close()
    with pytest.raises(StorageError, match="closed"):
        answers.find("k1")


Machine = Callable[[str], Root]


def answer(key: str) -> KeptAnswer:
    return KeptAnswer(key, "m", "p/1", 0, f"text of {key}", None, 3, 4, "2026-01-02T03:04:05Z")


@pytest.fixture
def machine(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that gives the root as this or that machine sees it."""

    def of(name: str) -> Root:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return Root(bucket)

    return of


def test_what_one_machine_was_answered_another_knows(machine: Machine) -> None:
    with Answers(machine("one")) as kept:
        kept.keep(answer("a"), ["local/m/tea"])
        kept.learn("http://llm", "seed", "yes")
    with Answers(machine("two")) as kept:
        assert kept.find("a") == answer("a")
        assert kept.offered("http://llm") == {"seed": "yes"}


def test_two_machines_at_once_lose_nothing(machine: Machine) -> None:
    with Answers(machine("one")) as one, Answers(machine("two")) as two:
        one.keep(answer("a"), ["d"])
        two.keep(answer("b"), ["d"])
    for name in ("one", "two", "three"):
        with Answers(machine(name)) as kept:
            assert [found.key for found in kept.kept(rejected=False)] == ["a", "b"]


def test_what_a_killed_process_kept_goes_up_with_the_next(machine: Machine) -> None:
    killed = Answers(machine("one"))
    killed.keep(answer("a"), ["d"])
    assert not machine("one").exists(FILE)
    with Answers(machine("two")) as kept:
        kept.keep(answer("b"), ["d"])
    with Answers(machine("one")) as kept:
        assert {found.key for found in kept.kept(rejected=False)} == {"a", "b"}
    with Answers(machine("two")) as kept:
        assert {found.key for found in kept.kept(rejected=False)} == {"a", "b"}


def test_a_night_without_questions_puts_nothing_there(machine: Machine) -> None:
    with Answers(machine("one")) as kept:
        assert kept.find("a") is None
    assert not machine("one").exists(FILE)


def test_what_was_forgotten_elsewhere_does_not_come_back_from_a_machine_that_held_it(
    machine: Machine,
) -> None:
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


def test_a_newer_file_of_a_bucket_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("storage.answers.SCHEMA_VERSION", 2)
        with Answers(machine("one")) as kept:
            kept.keep(answer("a"), ["d"])
    with pytest.raises(SchemaMismatch, match="schema version 2"):
        Answers(machine("two"))
