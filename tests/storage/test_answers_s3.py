from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.answers import FILE, Answers, KeptAnswer
from storage.errors import SchemaMismatch
from storage.root import Root
from storage.tombstones import Tombstone, add_tombstones

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
            assert [found.key for found in kept.accepted()] == ["a", "b"]


def test_what_a_killed_process_kept_goes_up_with_the_next(machine: Machine) -> None:
    killed = Answers(machine("one"))
    killed.keep(answer("a"), ["d"])
    assert not machine("one").exists(FILE)
    with Answers(machine("two")) as kept:
        kept.keep(answer("b"), ["d"])
    with Answers(machine("one")) as kept:
        assert {found.key for found in kept.accepted()} == {"a", "b"}
    with Answers(machine("two")) as kept:
        assert {found.key for found in kept.accepted()} == {"a", "b"}


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
            assert [found.key for found in kept.accepted()] == ["c"]


def test_a_file_of_a_newer_version_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("storage.answers.SCHEMA_VERSION", 2)
        with Answers(machine("one")) as kept:
            kept.keep(answer("a"), ["d"])
    with pytest.raises(SchemaMismatch, match="schema version 2"):
        Answers(machine("two"))
