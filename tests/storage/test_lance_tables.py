from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from storage.errors import SchemaMismatch, StorageError
from storage.lance.tables import (
    NODES,
    SKILLS,
    TableWriter,
    connect,
    keep_only,
    open_at,
    prune,
    rewrite,
    schema_of,
    table_names,
    tag,
    tagged,
    untag,
    versions_of,
)
from storage.root import Root

MODEL = {"name": "m", "revision": "1", "dimension": 4, "template": "{name}"}
SCHEMA = schema_of(NODES, MODEL)
ODD_IDS = ["o'neill/skill", "a''b", 'c"d', "e\\f", "g%h_", "ü\nx", "'); DROP TABLE nodes; --"]


@pytest.fixture
def db(tmp_path: Path) -> lancedb.DBConnection:
    return connect(Root(tmp_path))


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


def write(
    db: lancedb.DBConnection, base: int | None, *, add: list[str], delete: list[str] | None = None
) -> int:
    writer = TableWriter(db, NODES, SCHEMA, base)
    writer.delete(delete or [])
    writer.add(rows(add))
    return writer.finish(["doc_id", "node_id"])


def held(db: lancedb.DBConnection, version: int) -> list[str]:
    return sorted(open_at(db, NODES, version).search().select(["doc_id"]).to_arrow()["doc_id"].to_pylist())


def test_what_changed_is_taken_out_and_added(db: lancedb.DBConnection) -> None:
    first = write(db, None, add=["rye", "spelt", "oat"])
    second = write(db, first, add=["spelt", "corn"], delete=["rye", "spelt", "never"])
    assert held(db, second) == ["corn", "oat", "spelt"]


def test_a_reader_at_a_version_does_not_see_later_writes(db: lancedb.DBConnection) -> None:
    first = write(db, None, add=["rye"])
    reader = open_at(db, NODES, first)
    write(db, first, add=["oat"], delete=["rye"])
    assert reader.search().to_arrow()["doc_id"].to_pylist() == held(db, first) == ["rye"]


@pytest.mark.parametrize("doc_id", ODD_IDS)
def test_odd_ids_are_taken_out_and_no_others(db: lancedb.DBConnection, doc_id: str) -> None:
    first = write(db, None, add=["rye", *ODD_IDS])
    second = write(db, first, add=[], delete=[doc_id])
    assert held(db, second) == sorted({"rye", *ODD_IDS} - {doc_id})


def test_more_ids_than_one_statement_takes_are_taken_out(db: lancedb.DBConnection) -> None:
    ids = [f"skill-{n}" for n in range(1_203)]
    first = write(db, None, add=ids)
    assert held(db, write(db, first, add=[], delete=ids[1:])) == ids[:1]


def test_indices_cover_every_row_after_each_load(db: lancedb.DBConnection) -> None:
    base = None
    for grain, before in (("rye", "none"), ("oat", "rye"), ("corn", "oat")):
        ids = [f"{grain}-{n}" for n in range(30)]
        base = write(db, base, add=ids, delete=[f"{before}-{n}" for n in range(5)])
        table = open_at(db, NODES, base)
        indices = {i.columns[0]: table.index_stats(i.name) for i in table.list_indices()}
        assert indices.keys() == {"doc_id", "node_id"}
        for index in indices.values():
            assert index is not None
            assert (index.num_unindexed_rows, index.num_indexed_rows) == (0, table.count_rows())


def test_what_a_crash_left_after_the_base_is_passed_over(db: lancedb.DBConnection) -> None:
    base = write(db, None, add=["rye", "spelt"])
    died = TableWriter(db, NODES, SCHEMA, base)
    died.delete(["rye"])
    died.add(rows(["half"]))
    assert write(db, base, add=["oat"]) > base
    latest = db.open_table(NODES)
    assert held(db, int(latest.version)) == ["oat", "rye", "spelt"]
    assert held(db, base) == ["rye", "spelt"]


def test_a_writer_that_writes_nothing_adds_no_version_even_after_a_crash(db: lancedb.DBConnection) -> None:
    base = write(db, None, add=["rye"])
    TableWriter(db, NODES, SCHEMA, base).add(rows(["half"]))
    latest = db.open_table(NODES).version
    writer = TableWriter(db, NODES, SCHEMA, base)
    writer.delete([])
    writer.add(rows([]))
    assert not writer.written
    assert not writer.rebuilt
    assert writer.table.version == base
    assert writer.table.count_rows() == 1
    assert db.open_table(NODES).version == latest


def test_another_encoder_makes_the_table_anew_and_old_versions_stay(db: lancedb.DBConnection) -> None:
    base = write(db, None, add=["rye"])
    tag(db, NODES, "v-1", base)
    other = schema_of(NODES, {**MODEL, "revision": "2", "dimension": 6})
    writer = TableWriter(db, NODES, other, base)
    assert writer.rebuilt
    assert writer.table.count_rows() == 0
    writer.add(rows(["oat"], other))
    version = writer.finish(["doc_id"])
    assert held(db, version) == ["oat"]
    assert open_at(db, NODES, version).schema.field("vector").type.list_size == 6
    assert held(db, base) == ["rye"]
    assert open_at(db, NODES, base).schema.metadata == SCHEMA.metadata


def test_the_same_encoder_after_a_rebuild_that_died_goes_on_from_its_base(db: lancedb.DBConnection) -> None:
    base = write(db, None, add=["rye"])
    TableWriter(db, NODES, schema_of(NODES, {**MODEL, "dimension": 6}), base)
    assert held(db, write(db, base, add=["oat"])) == ["oat", "rye"]


def test_another_column_makes_the_table_anew(db: lancedb.DBConnection) -> None:
    base = write(db, None, add=["rye"])
    other = SCHEMA.append(pa.field("licence", pa.string())).with_metadata(SCHEMA.metadata)
    assert TableWriter(db, NODES, other, base).rebuilt


def test_without_a_base_the_table_starts_empty(db: lancedb.DBConnection) -> None:
    write(db, None, add=["rye"])
    assert held(db, write(db, None, add=["oat"])) == ["oat"]


def test_an_empty_table_is_finished_without_indices(db: lancedb.DBConnection) -> None:
    version = write(db, None, add=[])
    assert held(db, version) == []
    assert held(db, write(db, version, add=["rye"])) == ["rye"]


def test_tags_stay_with_their_version(db: lancedb.DBConnection) -> None:
    first = write(db, None, add=["rye"])
    assert tagged(db, NODES) == {}
    second = write(db, first, add=["oat"])
    tag(db, NODES, "v-2", second)
    tag(db, NODES, "v-1", first)
    tag(db, NODES, "v-1", first)
    tag(db, NODES, "mine", second)
    write(db, second, add=["corn"])
    assert tagged(db, NODES) == {"v-1": first, "v-2": second}
    untag(db, NODES, "v-1")
    assert tagged(db, NODES) == {"v-2": second}


def test_a_tag_used_again_moves_to_the_version_it_is_given(db: lancedb.DBConnection) -> None:
    first = write(db, None, add=["rye"])
    second = write(db, first, add=["oat"])
    tag(db, NODES, "v-1", first)
    tag(db, NODES, "v-1", second)
    assert tagged(db, NODES) == {"v-1": second}


def test_versions_are_known(db: lancedb.DBConnection) -> None:
    assert versions_of(db, NODES) == set()
    first = write(db, None, add=["rye"])
    second = write(db, first, add=["oat"])
    assert {first, second} <= versions_of(db, NODES) <= set(range(1, second + 1))


@pytest.mark.parametrize(("name", "version"), [(NODES, 99), ("absent", 1)])
def test_what_cannot_be_opened_is_named(db: lancedb.DBConnection, name: str, version: int) -> None:
    write(db, None, add=["rye"])
    with pytest.raises(StorageError, match=f"table {name} at version {version} cannot be opened"):
        open_at(db, name, version)


def test_a_base_that_is_gone_is_an_error_and_nothing_is_lost(db: lancedb.DBConnection) -> None:
    version = write(db, None, add=["rye"])
    with pytest.raises(StorageError, match="version 99"):
        TableWriter(db, NODES, SCHEMA, 99)
    assert held(db, version) == ["rye"]


def test_a_table_of_a_newer_program_is_refused(db: lancedb.DBConnection) -> None:
    metadata = {**(SCHEMA.metadata or {}), b"schema_version": b"99"}
    newer = db.create_table(NODES, schema=SCHEMA.with_metadata(metadata))
    with pytest.raises(SchemaMismatch, match="upgrade"):
        open_at(db, NODES, int(newer.version))
    with pytest.raises(SchemaMismatch, match="upgrade"):
        TableWriter(db, NODES, SCHEMA, int(newer.version))


def test_schemas_name_the_model_and_the_vectors_length() -> None:
    for schema in (schema_of(SKILLS, MODEL), SCHEMA):
        assert schema.field("vector").type == pa.list_(pa.float32(), 4)
        assert b'"revision": "1"' in (schema.metadata or {})[b"model"]


def test_an_empty_root_has_no_tables(db: lancedb.DBConnection) -> None:
    assert table_names(db) == []


def rewritten(db: lancedb.DBConnection, base: int, *, without: set[str]) -> int:
    def left(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(
            pa.array([d not in without for d in batch.column("doc_id").to_pylist()], pa.bool_())
        )

    return rewrite(db, NODES, base, left=left, indexed=["doc_id", "node_id"])


def test_a_rewritten_table_has_the_same_rows_but_those_left_out_in_order(db: lancedb.DBConnection) -> None:
    ids = [f"skill-{n}" for n in range(300)]
    base = write(db, None, add=ids)
    version = rewritten(db, base, without={"skill-7", "never"})
    before, after = (open_at(db, NODES, v).search().to_arrow() for v in (base, version))
    assert after.equals(before.filter(pa.array([d != "skill-7" for d in before["doc_id"].to_pylist()])))
    assert after.schema.metadata == before.schema.metadata
    assert {i.columns[0] for i in open_at(db, NODES, version).list_indices()} == {"doc_id", "node_id"}


def test_one_row_of_many_leaves_its_file(db: lancedb.DBConnection, tmp_path: Path) -> None:
    base = write(db, None, add=["qzxjvkwq", *(f"skill-{n}" for n in range(30))])
    assert files_with(tmp_path, b"qzxjvkwq")
    version = rewritten(db, base, without={"qzxjvkwq"})
    tag(db, NODES, "v-1", base)
    tag(db, NODES, "v-2", version)
    keep_only(db, NODES, version)
    assert files_with(tmp_path, b"qzxjvkwq") == []
    assert [v["version"] for v in db.open_table(NODES).list_versions()] == [version]
    assert list(db.open_table(NODES).tags.list()) == ["v-2"]
    assert held(db, write(db, version, add=["oat"], delete=["skill-3"]))[0] == "oat"


def files_with(folder: Path, word: bytes) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and word in p.read_bytes()]


def test_what_a_crash_left_behind_goes_with_the_old_versions(db: lancedb.DBConnection) -> None:
    base = write(db, None, add=["rye", "spelt"])
    TableWriter(db, NODES, SCHEMA, base).add(rows(["half"]))
    version = rewritten(db, base, without={"rye"})
    keep_only(db, NODES, version)
    assert held(db, version) == ["spelt"]


def test_everything_may_be_left_out(db: lancedb.DBConnection) -> None:
    version = rewritten(db, write(db, None, add=["rye"]), without={"rye"})
    keep_only(db, NODES, version)
    assert held(db, write(db, version, add=["oat"])) == ["oat"]


def test_a_version_that_is_not_the_latest_cannot_be_the_only_one(db: lancedb.DBConnection) -> None:
    first = write(db, None, add=["rye"])
    write(db, first, add=["oat"])
    with pytest.raises(StorageError, match=f"instead of {first} alone"):
        keep_only(db, NODES, first)


def test_pruning_removes_versions_older_than_those_kept_with_the_files_theirs_alone(
    db: lancedb.DBConnection,
) -> None:
    first = write(db, None, add=["a", "b"])
    tag(db, NODES, "v-1", first)
    margin = timedelta(seconds=3)
    time.sleep(margin.total_seconds() + 1)
    second = write(db, first, add=["c"], delete=["a", "b"])
    tag(db, NODES, "v-2", second)

    prune(db, NODES, {second}, ["v-1", "v-of-nothing"], margin)

    with pytest.raises(StorageError, match=f"version {first}"):
        open_at(db, NODES, first)
    assert held(db, second) == ["c"]
    assert list(db.open_table(NODES).tags.list()) == ["v-2"]


def test_pruning_leaves_what_is_tagged_by_another_name(
    db: lancedb.DBConnection, caplog: pytest.LogCaptureFixture
) -> None:
    margin = timedelta(seconds=3)
    first = write(db, None, add=["a"])
    tag(db, NODES, "a-persons-own", first)
    time.sleep(margin.total_seconds() + 1)
    second = write(db, first, add=["b"])

    prune(db, NODES, {second}, ["v-1"], margin)

    assert held(db, first) == ["a"]
    assert "stay until" not in caplog.text


def test_pruning_that_would_take_a_tagged_version_removes_nothing(
    db: lancedb.DBConnection, caplog: pytest.LogCaptureFixture
) -> None:
    write(db, None, add=["a"])
    second = write(db, db.open_table(NODES).version, add=["b"])
    tag(db, NODES, "v-2", second)

    margin = timedelta(seconds=0.05)
    time.sleep(2 * margin.total_seconds())

    prune(db, NODES, {second}, [], -margin)

    assert held(db, second) == ["a", "b"]
    assert "files of old versions of nodes stay" in caplog.text
