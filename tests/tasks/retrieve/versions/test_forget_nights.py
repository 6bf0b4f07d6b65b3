"""What has been forgotten does not come back, whoever brings it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from storage.state import documents_table, read_sources
from storage.tombstones import Forgotten
from tasks.retrieve.versions.forget import forget
from tests.support.roots.forgetting import FIRST, HEAD, SECOND, TARGET, copy_of, holding, rye
from tests.support.roots.hand_written import BEES
from tests.support.roots.skill_root import SkillRoot

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def root(skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    """A root that has forgotten a skill which its source still holds."""
    made = skill_root({"rye": rye(FIRST), "bees": BEES})
    made.publish()
    forget(made.root, TARGET, run_id="gone", now=NOW)
    return made


def test_a_source_that_still_holds_it_is_read_without_it(root: SkillRoot) -> None:
    root.write("bees", BEES.replace("varroa", "moths"))
    root.publish()
    assert holding(root.root, (FIRST, HEAD)) == set()
    assert documents_table(root.root).read()["doc_id"].to_list() == ["local/market/bees"]
    (record,) = read_sources(root.root).values()
    assert record["failed"] == {"forgotten": 1}


def test_it_is_left_out_whatever_it_says_now(root: SkillRoot) -> None:
    root.write("rye", rye(SECOND))
    root.publish()
    assert holding(root.root, (SECOND, HEAD)) == set()


def test_the_same_bytes_under_another_id_are_left_out(root: SkillRoot) -> None:
    root.write("another", rye(FIRST))
    root.publish()
    assert holding(root.root, (FIRST, HEAD)) == set()


def test_the_same_body_under_another_head_is_dropped_when_it_is_refined(root: SkillRoot) -> None:
    root.write("another", copy_of(FIRST))
    root.publish()
    assert documents_table(root.root).read()["doc_id"].to_list() == ["local/market/bees"]
    left = holding(root.root, (FIRST,))
    assert {f.partition("/")[0] for f in left} == {"raw"}
    assert forget(root.root, "local/market/another", run_id="more", now=NOW).removed
    assert holding(root.root, (FIRST, HEAD)) == set()


def test_a_new_skill_of_its_own_is_taken(root: SkillRoot) -> None:
    root.write("spelt", rye(SECOND))
    root.publish()
    assert "local/market/spelt" in documents_table(root.root).read()["doc_id"]
    assert Forgotten.load(root.root).covers(TARGET)
