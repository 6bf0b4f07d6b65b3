from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lancedb.index import FTS

from storage.errors import SchemaMismatch, StorageError
from storage.lance.tables import INDUCED, NODES, TableAt, TableWriter, schema_of
from storage.lance.versions import keep_only, manifest_reads, prune, rewrite, tag, tagged, untag, versions_of
from storage.root import Root
from tests.support.roots.vendor import connect, open_at

MODEL = {"name": "m", "revision": "1", "dimension": 4, "template": "{name}"}
SCHEMA, LEARNED = schema_of(NODES, MODEL), schema_of(INDUCED, MODEL)
ODD_IDS = ["o'neill/skill", "a''b", 'c"d', "e\\f", "g%h_", "ü\nx", "'); DROP TABLE nodes; --"]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def rows(doc_ids: list[str], schema: pa.Schema = SCHEMA) -> pa.Table:
    size = schema.field("vector").type.list_size
    given: dict[str, list[Any]] = {
        "doc_id": doc_ids,
        "node_id": [f"{d}#0" for d in doc_ids],
        "text": [f"knead the dough of {d}" for d in doc_ids],
        "vector": [[1.0] + [0.0] * (size - 1)] * len(doc_ids),
    }
    columns = {f.name: given.get(f.name, [None] * len(doc_ids)) for f in schema}
    return pa.table(columns, schema=schema)


def write(root: Root, base: int | None, *, add: list[str], delete: list[str] | None = None) -> int:
    writer = TableWriter(root, NODES, SCHEMA, base)
    writer.delete(delete or [])
    writer.add(rows(add))
    return writer.finish()


def held(root: Root, version: int) -> list[str]:
    return sorted(TableAt(root, NODES, version).rows(["doc_id"])["doc_id"].to_pylist())


def test_what_changed_is_taken_out_and_added_and_a_reader_at_a_version_does_not_see_it(root: Root) -> None:
    assert versions_of(root, NODES) == set()
    empty = write(root, None, add=[])
    assert held(root, empty) == []
    first = write(root, empty, add=["rye", "spelt", "oat"])
    reader = TableAt(root, NODES, first)
    reader.opened()
    second = write(root, first, add=["spelt", "corn"], delete=["rye", "spelt", "never"])
    assert held(root, second) == ["corn", "oat", "spelt"]
    assert sorted(reader.rows()["doc_id"].to_pylist()) == held(root, first) == ["oat", "rye", "spelt"]
    assert {first, second} <= versions_of(root, NODES) <= set(range(1, second + 1))
    assert held(root, write(root, None, add=["millet"])) == ["millet"]  # without a base, from nothing


def test_odd_ids_are_taken_out_and_no_others(root: Root) -> None:
    version, left = write(root, None, add=["rye", *ODD_IDS]), {"rye", *ODD_IDS}
    for doc_id in ODD_IDS:
        version, left = write(root, version, add=[], delete=[doc_id]), left - {doc_id}
        assert held(root, version) == sorted(left)


def test_more_ids_than_one_statement_takes_are_taken_out(root: Root) -> None:
    ids = [f"skill-{n}" for n in range(1_203)]
    first = write(root, None, add=ids)
    assert held(root, write(root, first, add=[], delete=ids[1:])) == ids[:1]


def test_indices_cover_every_row_after_each_load(root: Root) -> None:
    base = None
    for grain, before in (("rye", "none"), ("oat", "rye"), ("corn", "oat")):
        ids = [f"{grain}-{n}" for n in range(30)]
        base = write(root, base, add=ids, delete=[f"{before}-{n}" for n in range(5)])
        table = open_at(connect(root), NODES, base)
        indices = {i.columns[0]: table.index_stats(i.name) for i in table.list_indices()}
        assert indices.keys() == {"doc_id", "node_id"}
        for index in indices.values():
            assert index is not None
            assert (index.num_unindexed_rows, index.num_indexed_rows) == (0, table.count_rows())


def test_what_a_crash_left_after_the_base_is_passed_over_also_by_who_writes_nothing(root: Root) -> None:
    base = write(root, None, add=["rye", "spelt"])
    died = TableWriter(root, NODES, SCHEMA, base)
    died.delete(["rye"])
    died.add(rows(["half"]))
    latest = connect(root).open_table(NODES).version
    idle = TableWriter(root, NODES, SCHEMA, base)
    idle.delete([])
    idle.add(rows([]))
    assert (idle.written, idle.rebuilt, idle.version, idle.count()) == (False, False, base, 2)
    assert connect(root).open_table(NODES).version == latest
    assert write(root, base, add=["oat"]) > base
    assert held(root, int(connect(root).open_table(NODES).version)) == ["oat", "rye", "spelt"]
    assert held(root, base) == ["rye", "spelt"]


def test_another_encoder_makes_the_table_anew_and_old_versions_stay(root: Root) -> None:
    base = write(root, None, add=["rye"])
    tag(root, NODES, "v-1", base)
    other = schema_of(NODES, {**MODEL, "revision": "2", "dimension": 6})
    writer = TableWriter(root, NODES, other, base)
    assert writer.rebuilt
    assert writer.count() == 0
    writer.add(rows(["oat"], other))
    version = writer.finish()
    assert held(root, version) == ["oat"]
    assert open_at(connect(root), NODES, version).schema.field("vector").type.list_size == 6
    assert held(root, base) == ["rye"]
    assert open_at(connect(root), NODES, base).schema.metadata == SCHEMA.metadata


def test_the_same_encoder_after_a_rebuild_that_died_goes_on_from_its_base(root: Root) -> None:
    base = write(root, None, add=["rye"])
    TableWriter(root, NODES, schema_of(NODES, {**MODEL, "dimension": 6}), base)
    assert held(root, write(root, base, add=["oat"])) == ["oat", "rye"]
    other = SCHEMA.append(pa.field("licence", pa.string())).with_metadata(SCHEMA.metadata)
    assert TableWriter(root, NODES, other, base).rebuilt  # another column


def test_tags_stay_with_their_version(root: Root) -> None:
    first = write(root, None, add=["rye"])
    assert tagged(root, NODES) == {}
    second = write(root, first, add=["oat"])
    tag(root, NODES, "v-2", first)
    tag(root, NODES, "v-2", second)
    tag(root, NODES, "v-1", first)
    tag(root, NODES, "v-1", first)
    tag(root, NODES, "mine", second)
    write(root, second, add=["corn"])
    assert tagged(root, NODES) == {"v-1": first, "v-2": second}
    untag(root, NODES, "v-1")
    assert tagged(root, NODES) == {"v-2": second}


def test_what_cannot_be_opened_is_named_and_nothing_is_lost(root: Root) -> None:
    base = write(root, None, add=["rye"])
    for name, version in ((NODES, 99), ("absent", 1)):
        with pytest.raises(StorageError, match=f"table {name} at version {version} cannot be opened"):
            TableAt(root, name, version).opened()
    with pytest.raises(StorageError, match="version 99"):
        TableWriter(root, NODES, SCHEMA, 99)
    assert held(root, base) == ["rye"]


def test_a_table_of_a_newer_program_is_refused(root: Root) -> None:
    metadata = {**(SCHEMA.metadata or {}), b"schema_version": b"99"}
    newer = connect(root).create_table(NODES, schema=SCHEMA.with_metadata(metadata))
    with pytest.raises(SchemaMismatch, match="upgrade"):
        TableAt(root, NODES, int(newer.version)).opened()
    with pytest.raises(SchemaMismatch, match="upgrade"):
        TableWriter(root, NODES, SCHEMA, int(newer.version))


def rewritten(root: Root, base: int, *, without: set[str]) -> int:
    def left(batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = [doc_id not in without for doc_id in batch.column("doc_id").to_pylist()]
        return batch.filter(pa.array(kept, pa.bool_()))

    return rewrite(root, NODES, base, left)


def test_a_rewritten_table_has_the_same_rows_but_those_left_out_in_order(root: Root) -> None:
    ids = [f"skill-{n}" for n in range(300)]
    base = write(root, None, add=ids)
    version = rewritten(root, base, without={"skill-7", "never"})
    before, after = (open_at(connect(root), NODES, v).search().to_arrow() for v in (base, version))
    assert after.equals(before.filter(pa.array([d != "skill-7" for d in before["doc_id"].to_pylist()])))
    assert after.schema.metadata == before.schema.metadata
    indices = open_at(connect(root), NODES, version).list_indices()
    assert {index.columns[0] for index in indices} == {"doc_id", "node_id"}


def test_one_row_of_many_leaves_its_file(root: Root, tmp_path: Path) -> None:
    base = write(root, None, add=["qzxjvkwq", *(f"skill-{n}" for n in range(30))])
    assert files_with(tmp_path, b"qzxjvkwq")
    version = rewritten(root, base, without={"qzxjvkwq"})
    tag(root, NODES, "v-1", base)
    tag(root, NODES, "v-2", version)
    keep_only(root, NODES, version)
    assert files_with(tmp_path, b"qzxjvkwq") == []
    assert [v["version"] for v in connect(root).open_table(NODES).list_versions()] == [version]
    assert list(connect(root).open_table(NODES).tags.list()) == ["v-2"]
    assert held(root, write(root, version, add=["oat"], delete=["skill-3"]))[0] == "oat"


def files_with(folder: Path, word: bytes) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and word in p.read_bytes()]


def test_what_a_crash_left_goes_with_the_old_versions_and_everything_may_be_left_out(root: Root) -> None:
    base = write(root, None, add=["rye", "spelt"])
    TableWriter(root, NODES, SCHEMA, base).add(rows(["half"]))
    version = rewritten(root, base, without={"rye"})
    keep_only(root, NODES, version)
    assert held(root, version) == ["spelt"]
    version = rewritten(root, version, without={"spelt"})
    keep_only(root, NODES, version)
    assert held(root, write(root, version, add=["oat"])) == ["oat"]


def test_a_version_that_is_not_the_latest_cannot_be_the_only_one(root: Root) -> None:
    first = write(root, None, add=["rye"])
    write(root, first, add=["oat"])
    with pytest.raises(StorageError, match=f"instead of {first} alone"):
        keep_only(root, NODES, first)


MARGIN = timedelta(seconds=0.4)  # in which a table is compacted, unless the machine is busy


def test_pruning_removes_versions_older_than_those_kept_and_leaves_what_is_tagged_by_another_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = Root(tmp_path / "ours"), Root(tmp_path / "theirs")
    for root, name in ((ours, "v-1"), (theirs, "a-persons-own")):
        tag(root, NODES, name, write(root, None, add=["a", "b"]))
    time.sleep(MARGIN.total_seconds() + 0.2)
    first = connect(ours).open_table(NODES).version
    second = write(ours, first, add=["c"], delete=["a", "b"])
    tag(ours, NODES, "v-2", second)
    for _ in range(20):  # where compacting took longer, files stay until the next time
        if first in versions_of(ours, NODES):
            prune(ours, NODES, {second}, ["v-1", "v-of-nothing"], MARGIN)
    with pytest.raises(StorageError, match=f"version {first}"):
        TableAt(ours, NODES, first).opened()
    assert held(ours, second) == ["c"]
    assert list(connect(ours).open_table(NODES).tags.list()) == ["v-2"]
    caplog.clear()
    first = connect(theirs).open_table(NODES).version
    prune(theirs, NODES, {write(theirs, first, add=["c"])}, ["v-1"], MARGIN)
    assert held(theirs, first) == ["a", "b"]
    assert "stay until" not in caplog.text


def test_pruning_never_takes_a_tagged_version(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    write(root, None, add=["a"])
    second = write(root, connect(root).open_table(NODES).version, add=["b"])
    tag(root, NODES, "v-2", second)
    margin = timedelta(seconds=0.05)
    time.sleep(2 * margin.total_seconds())
    prune(root, NODES, {second}, [], -margin)
    assert held(root, second) == ["a", "b"]
    assert "files of old versions of nodes stay" in caplog.text


def load(root: Root, base: int | None, *ids: str, gone: str = "", merge: bool = False) -> int:
    """Write rows with these ids as texts, and return the version."""
    writer = TableWriter(root, INDUCED, LEARNED, base)
    writer.delete([gone])
    given = {"row_id": list(ids), "text": list(ids), "vector": [[1.0, 0, 0, 0]] * len(ids)}
    writer.add(pa.table({f.name: given.get(f.name, [None] * len(ids)) for f in LEARNED}, schema=LEARNED))
    return writer.finish(merge=merge)


def learned(root: Root, version: int) -> set[str]:
    return set(open_at(connect(root), INDUCED, version).search().to_arrow()["row_id"].to_pylist())


def test_a_manifest_reads_wherever_it_lies_unless_its_own_bytes_are_wrong(tmp_path: Path) -> None:
    TableWriter(Root(tmp_path), NODES, SCHEMA, None)
    for manifest in (tmp_path / "lance/nodes.lance/_versions").glob("*.manifest"):
        data = manifest.read_bytes()
        assert manifest_reads(manifest.name, data)
        assert not manifest_reads(manifest.name, data[:-20])
        assert not manifest_reads(manifest.name, b"")


def test_an_index_of_words_that_an_earlier_version_made_goes_with_the_next_load(root: Root) -> None:
    base = load(root, None, "rye")
    table = connect(root).open_table(INDUCED)
    table.create_index("text", config=FTS())
    asked = table.search("rye", query_type="fts", fts_columns="text")
    assert asked.to_arrow().num_rows == 1
    version = load(root, int(table.version), "oat")
    assert [i.columns for i in open_at(connect(root), INDUCED, version).list_indices()] == [["row_id"]]
    assert learned(root, base) == {"rye"}
    assert learned(root, version) == {"oat", "rye"}


def test_files_are_merged_where_there_are_many_or_it_is_asked_for(root: Root) -> None:
    base, files = load(root, None, "night-0"), []
    for n in range(1, 30):
        base = load(root, base, f"night-{n}", f"once-{n}", gone=f"once-{n - 1}")
        files.append(TableAt(root, INDUCED, base).size()[1])
    assert files == [*range(2, 21), *range(2, 12)]  # what is not indexed yet is not merged
    assert learned(root, base) == {*(f"night-{n}" for n in range(30)), "once-29"}
    merged = load(root, base, merge=True)
    assert TableAt(root, INDUCED, merged).size()[1] == 1
    assert learned(root, merged) == learned(root, base)
