from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from storage.lance.tables import NODES, SKILLS
from storage.state import documents_table, refined_table
from tasks.models.protocols import Vectors
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.retrieve.index.build import redo_all
from tasks.retrieve.routing.store import open_routing
from tests.support.roots import hand_written
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

Make = Callable[[dict[str, str]], SkillRoot]


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    made = skill_root(hand_written.SKILLS)
    made.publish()
    return made


def contents(root: SkillRoot, name: str, version: int, key: str) -> pl.DataFrame:
    rows = pl.DataFrame(open_at(connect(root.root), name, version).search().to_arrow())
    return rows.sort(key)


def test_after_it_every_document_is_to_be_done_again(root: SkillRoot) -> None:
    assert plan_refine(root.root, FilterLimits()).todo == 0
    assert redo_all(root.root, keep_vectors=True) == len(hand_written.SKILLS)
    assert plan_refine(root.root, FilterLimits()).todo == len(hand_written.SKILLS)


def test_until_it_is_done_again_all_is_served_as_it_was(root: SkillRoot) -> None:
    before = root.ask().search("treat varroa mites")["results"]
    redo_all(root.root, keep_vectors=False)
    assert root.ask().search("treat varroa mites")["results"] == before
    assert documents_table(root.root).read().height == len(hand_written.SKILLS)
    assert set(refined_table(root.root).read()["outcome"]) == {"kept"}


def test_what_is_built_anew_lies_beside_what_is_served_and_says_the_same(root: SkillRoot) -> None:
    served = root.served()
    redo_all(root.root, keep_vectors=True)
    root.crawl()
    assert root.parse()["documents"] == len(hand_written.SKILLS)
    built = root.build(anew=True)
    assert built.changed
    assert all(check.passed for check in root.check(built))
    assert root.served() == served
    assert built.nodes is not None
    assert served.nodes is not None
    assert contents(root, SKILLS, built.skills, "doc_id").equals(
        contents(root, SKILLS, served.skills, "doc_id")
    )
    assert contents(root, NODES, built.nodes, "node_id").equals(
        contents(root, NODES, served.nodes, "node_id")
    )


def vectors(root: SkillRoot) -> dict[str, list[float]]:
    table = open_at(connect(root.root), SKILLS, root.served().skills)
    rows = table.search().select(["doc_id", "vector"]).to_arrow().to_pylist()
    return {row["doc_id"]: row["vector"] for row in rows}


@pytest.mark.slow
def test_what_was_to_be_built_anew_is_by_the_next_run_if_the_first_was_killed(root: SkillRoot) -> None:
    redo_all(root.root, keep_vectors=False)
    root.crawl()
    root.parse()
    root.build(anew=True)  # and killed before it was served
    built = root.publish()
    assert (built.changed, built.vectors_new) == (True, 0)
    assert not root.publish().changed


def test_after_it_routing_ranks_by_the_new_vectors(root: SkillRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    before, encode = vectors(root), root.encoder.encode_states

    def turned(texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        made, states = encode(texts)
        return -made, states

    monkeypatch.setattr(root.encoder, "encode_states", turned)
    redo_all(root.root, keep_vectors=False)
    root.publish()
    index = open_routing(root.root, root.served())
    for doc_id, vector in zip(index.doc_ids, index.vectors, strict=True):
        assert vector.tolist() == vectors(root)[doc_id] != before[doc_id]


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "made again"])
def test_vectors_are_kept_only_if_asked(root: SkillRoot, keep: bool) -> None:
    folders = [Path(root.root.at(name)) for name in ("vectors", "states")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "part.parquet").write_bytes(b"x")
    redo_all(root.root, keep_vectors=keep)
    assert [folder.exists() for folder in folders] == [keep, keep]
