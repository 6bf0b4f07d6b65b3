from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from storage.lance.tables import NODES, TableWriter
from storage.lance.tables import SKILLS as SKILLS_TABLE
from storage.state import documents_table, nodes_table, refined_table
from tasks.crawl.local.directory import DirectorySource
from tasks.models.protocols import Vectors
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.retrieve.index import build as index
from tasks.retrieve.index.build import redo_all
from tasks.retrieve.routing.store import open_routing
from tests.support.processes import slow_but
from tests.support.roots.hand_written import BREAD, SKILLS, skill
from tests.support.roots.skill_root import Make, SkillRoot
from tests.support.roots.tables import in_step, rows
from tests.support.roots.vendor import connect, open_at

MORE_BREAD = BREAD + "\nFreeze the second loaf in slices.\n"


def versions(root: SkillRoot) -> list[int]:
    db = connect(root.root)
    return [len(db.open_table(name).list_versions()) for name in (SKILLS_TABLE, NODES)]


def test_the_first_build_takes_up_all(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    built = root.publish()
    assert (built.skills_rows, built.changed, built.vectors_new) == (4, True, 4)
    assert built.nodes_rows == nodes_table(root.root).read().height
    assert in_step(root, built)
    for row in rows(root, built).values():
        body = row["text"][row["body_start"] :]
        assert body.startswith("# ")
        assert row["text"].startswith(f"{row['name']}\n{row['description']}\n#")
        assert row["n_tokens"] == root.encoder.count([body])[0]
        assert (row["doc_key"], row["stale"]) == (row["doc_id"].casefold(), False)


def test_parse_and_build_encode_each_text_once(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.crawl()
    root.parse()
    built = root.build()
    heads = [f"{r['name']}\n{r['description']}" for r in rows(root, built).values()]
    nodes = [r["text"] for r in rows(root, built, NODES).values()]
    assert sorted(root.encoder.encoded) == sorted([*heads, *nodes])


def test_states_packed_in_another_way_are_all_made_anew(
    skill_root: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = skill_root(SKILLS)
    before = root.publish()
    root.encoder.encoded.clear()
    monkeypatch.setattr("tasks.retrieve.index.build.packing", lambda: "another")
    monkeypatch.setattr("tasks.models.cached_encoder.packing", lambda: "another")
    root.use_encoder(root.encoder)
    root.crawl()
    root.parse()
    built = root.index()
    nodes = [row["text"] for row in rows(root, built, NODES).values()]
    assert built.changed
    assert built.nodes_rows == before.nodes_rows
    assert set(nodes) <= set(root.encoder.encoded)


def test_an_unchanged_corpus_makes_no_new_version(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    first = root.publish()
    before, served = versions(root), root.served()
    root.encoder.encoded.clear()
    again = root.publish()
    assert not again.changed
    assert (again.skills, again.nodes, again.vectors_new) == (first.skills, first.nodes, 0)
    assert (versions(root), root.served(), root.encoder.encoded) == (before, served, [])


def test_only_what_changed_is_written(root: SkillRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    root.write("bread", MORE_BREAD)
    root.crawl()
    root.parse()
    added: list[pa.Table] = []
    add = TableWriter.add

    def noting(writer: TableWriter, new: pa.Table) -> None:
        added.append(new)
        add(writer, new)

    monkeypatch.setattr(TableWriter, "add", noting)
    built = root.index()
    written = {d for table in added for d in table.column("doc_id").to_pylist()}
    assert written == {"local/market/bread"}
    assert built.changed
    assert built.vectors_new == 0  # of its name and description there is one
    assert in_step(root, built)


def test_a_document_that_is_gone_leaves_both_tables_and_a_changed_one_keeps_none_of_its_old_nodes(
    root: SkillRoot,
) -> None:
    root.write("bread", skill("bread", "Bakes", "Buy a loaf."))
    root.remove("bees")
    built = root.publish()
    own = [r["text"] for r in rows(root, built, NODES).values() if r["doc_id"] == "local/market/bread"]
    assert own == ["Buy a loaf."]
    assert "local/market/bees" not in rows(root, built)
    assert built.skills_rows == 3
    assert in_step(root, built)


def test_nodes_left_for_later_are_caught_up_with(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    first = root.publish(nodes=False)
    assert (first.nodes, root.served().nodes) == (None, None)
    root.encoder.encoded.clear()
    built = root.publish()
    assert built.changed
    assert root.served().nodes == built.nodes
    assert in_step(root, built)


def test_a_night_without_nodes_takes_nothing_from_them(root: SkillRoot) -> None:
    served = root.served()
    assert not root.publish(nodes=False).changed
    assert root.served() == served
    root.write("bread", MORE_BREAD)
    root.publish(nodes=False)
    assert root.served().nodes is None
    root.encoder.encoded.clear()
    root.crawl()
    root.parse()
    built = root.build()
    assert not any("veil" in text for text in root.encoder.encoded)
    assert in_step(root, built)


@pytest.mark.parametrize("nodes", slow_but({True}, [True, False]))
def test_another_model_rebuilds_everything(root: SkillRoot, nodes: bool) -> None:
    root.use_model("someone/else", "r2")
    built = root.publish(nodes=nodes)
    assert built.skills_rows == built.changed * 4
    assert root.served().model["revision"] == "r2"
    table = open_at(connect(root.root), SKILLS_TABLE, built.skills)
    assert b'"someone/else"' in table.schema.metadata[b"model"]
    if nodes:
        assert in_step(root, built)
    else:
        assert in_step(root, root.publish())


def test_a_build_that_was_never_published_is_not_built_upon(root: SkillRoot) -> None:
    served = root.served()
    root.write("bread", MORE_BREAD)
    root.crawl()
    root.parse()
    dead = root.build()
    assert dead.changed
    assert root.served() == served
    root.write("bread", BREAD)
    root.remove("bees")
    built = root.publish()
    assert in_step(root, built)
    assert built.skills_rows == 3


@pytest.mark.parametrize(
    "dies_at", slow_but({"_update_skills"}, ["_update_nodes", "_update_skills", "_changed"])
)
def test_a_build_that_died_half_way_is_done_again(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    root.write("bread", MORE_BREAD)
    root.remove("bees")
    root.crawl()
    root.parse()
    whole = getattr(index, dies_at)

    def dying(*args: object) -> None:
        whole(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(index, dies_at, dying)
    with pytest.raises(KeyboardInterrupt):
        root.build()
    monkeypatch.undo()
    assert in_step(root, root.index())


def test_a_source_that_cannot_be_read_marks_its_rows_stale_until_it_can(root: SkillRoot) -> None:
    aside = root.market.rename(root.market.with_name("aside"))
    unread = root.publish()
    assert [r["stale"] for r in rows(root, unread).values()] == [True] * 4
    assert unread.vectors_new == 0
    assert in_step(root, unread)
    aside.rename(root.market)
    read = root.publish()
    assert [r["stale"] for r in rows(root, read).values()] == [False] * 4


def test_a_corpus_that_loses_its_last_document_is_served_empty(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD, "not-text": ""})
    root.publish()
    root.remove("bread")
    built = root.publish()
    assert (built.skills_rows, built.nodes_rows) == (0, 0)
    assert root.ask().search("bread")["results"] == []


def test_ids_with_quotes_are_no_hazard(skill_root: Make) -> None:
    root = skill_root({'baker\'s "best"': BREAD, "o'; DROP": SKILLS["bees"]})
    assert isinstance(DirectorySource(str(root.market)).version(), str)
    root.publish()
    root.write("o'; DROP", SKILLS["bees"].replace("\n# ", "\nOne more word on it.\n\n# ", 1))
    built = root.publish()
    assert built.skills_rows == 2
    assert in_step(root, built)
    names: Sequence[str] = sorted(rows(root, built))
    assert root.ask().find(names[0].upper()) == names[0]


def contents(root: SkillRoot, name: str, version: int, key: str) -> pl.DataFrame:
    rows = pl.DataFrame(open_at(connect(root.root), name, version).search().to_arrow())
    return rows.sort(key)


def test_after_it_every_document_is_to_be_done_again(root: SkillRoot) -> None:
    assert plan_refine(root.root, FilterLimits()).todo == 0
    assert redo_all(root.root, keep_vectors=True) == len(SKILLS)
    assert plan_refine(root.root, FilterLimits()).todo == len(SKILLS)


def test_until_it_is_done_again_all_is_served_as_it_was(root: SkillRoot) -> None:
    before = root.ask().search("treat varroa mites")["results"]
    redo_all(root.root, keep_vectors=False)
    assert root.ask().search("treat varroa mites")["results"] == before
    assert documents_table(root.root).read().height == len(SKILLS)
    assert set(refined_table(root.root).read()["outcome"]) == {"kept"}


def test_what_is_built_anew_lies_beside_what_is_served_and_says_the_same(root: SkillRoot) -> None:
    served = root.served()
    redo_all(root.root, keep_vectors=True)
    root.crawl()
    assert root.parse()["documents"] == len(SKILLS)
    built = root.build(anew=True)
    assert built.changed
    assert all(check.passed for check in root.check(built))
    assert root.served() == served
    assert built.nodes is not None
    assert served.nodes is not None
    assert contents(root, SKILLS_TABLE, built.skills, "doc_id").equals(
        contents(root, SKILLS_TABLE, served.skills, "doc_id")
    )
    assert contents(root, NODES, built.nodes, "node_id").equals(
        contents(root, NODES, served.nodes, "node_id")
    )


def vectors(root: SkillRoot) -> dict[str, list[float]]:
    table = open_at(connect(root.root), SKILLS_TABLE, root.served().skills)
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
