"""Tables as Parquet files: one file, and one in partitions by document."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import SchemaMismatch, StorageError
from storage.parquet import read_columns, read_frame, rewrite_rows, write_frame
from storage.partitions import PARTITIONS, PartitionedTable, missing_files, partition_of
from storage.root import Root
from storage.schemas import (
    DOCUMENTS,
    DROPPED,
    EDGES,
    LISTINGS,
    NODES,
    RAW_DOCUMENTS,
    SCHEMA_VERSION,
    RawDocument,
    to_frame,
)
from storage.state import ALIASES, PARSED, REFINED, SEEN
from tests.support.roots.nights import Killed, dying_at

_COLUMNS: dict[str, Any] = {"doc_id": pl.String, "size": pl.Int64, "at": pl.Datetime("us", "UTC")}
SCHEMA = pl.Schema(_COLUMNS)
FRAME = pl.DataFrame(
    {"doc_id": ["rye", "spelt"], "size": [1, None], "at": [datetime(2026, 1, 1, tzinfo=UTC), None]},
    schema=SCHEMA,
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_a_frame_is_read_as_it_was_written_and_columns_in_the_order_of_the_schema(root: Root) -> None:
    write_frame(root, "t/a.parquet", FRAME, SCHEMA)
    assert read_frame(root, "t/a.parquet", SCHEMA).equals(FRAME)
    assert read_frame(root, "t/a.parquet", SCHEMA, ["at", "doc_id"]).equals(FRAME.select("doc_id", "at"))
    with pytest.raises(StorageError, match=r"t/b\.parquet is missing"):
        read_frame(root, "t/b.parquet", SCHEMA)


VECTORS = pl.Schema({"vector": pl.Array(pl.Float32, 3)})


@pytest.mark.parametrize(
    "schema",
    [RAW_DOCUMENTS, DOCUMENTS, NODES, EDGES, DROPPED, LISTINGS, SEEN, REFINED, PARSED, ALIASES, VECTORS],
)
def test_every_record_keeps_its_types_even_without_rows(root: Root, schema: pl.Schema) -> None:
    write_frame(root, "a.parquet", pl.DataFrame(schema=schema), schema)
    assert read_frame(root, "a.parquet", schema).schema == schema


@given(
    rows=st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1)))),
    each=st.integers(1, 50),
)
def test_some_rows_are_those_of_the_whole_file_whatever_its_groups(
    rows: tuple[int, list[int]], each: int
) -> None:
    count, wanted = rows
    schema = pl.Schema({"n": pl.Int64})
    with tempfile.TemporaryDirectory() as folder:
        root = Root(folder)
        write_frame(root, "a.parquet", pl.DataFrame({"n": range(count)}, schema=schema), schema, each)
        assert read_frame(root, "a.parquet", schema, rows=wanted)["n"].to_list() == wanted


def test_a_group_that_is_not_wanted_is_not_decoded_and_one_that_is_damaged_is_told(root: Root) -> None:
    frame = pl.DataFrame({"vector": np.eye(3, dtype=np.float32).repeat(4, axis=0)}, schema=VECTORS)
    write_frame(root, "a.parquet", frame, VECTORS, 4)
    file = Path(root.at("a.parquet"))
    column = pq.ParquetFile(file).metadata.row_group(1).column(0)
    data = bytearray(file.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    file.write_bytes(data)
    assert read_frame(root, "a.parquet", VECTORS, rows=[11, 0]).equals(frame[[11, 0]])
    with pytest.raises(StorageError, match=r"a\.parquet"):
        read_frame(root, "a.parquet", VECTORS, rows=[5])
    with pytest.raises(StorageError, match=r"row 12 of 12 was asked for"):
        read_frame(root, "a.parquet", VECTORS, rows=[0, 12])


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.drop("size"),
        FRAME.with_columns(pl.col("size").cast(pl.Int32)),
        FRAME.with_columns(extra=1),
        FRAME.select("size", "doc_id", "at"),
    ],
    ids=["missing", "another type", "one more", "another order"],
)
def test_other_columns_are_not_written(root: Root, frame: pl.DataFrame) -> None:
    with pytest.raises(SchemaMismatch, match=r"a\.parquet"):
        write_frame(root, "a.parquet", frame, SCHEMA)
    assert not root.exists("a.parquet")


@pytest.mark.parametrize("columns", [None, ["doc_id"], ["size"]])
@pytest.mark.parametrize(
    "schema",
    [{"doc_id": pl.String, "at": SCHEMA["at"]}, {**SCHEMA, "size": pl.String}, {**SCHEMA, "extra": pl.Int64}],
    ids=["missing", "another type", "one more"],
)
def test_other_columns_are_not_read(root: Root, schema: dict[str, pl.DataType], columns: list[str]) -> None:
    write_frame(root, "a.parquet", pl.DataFrame(schema=schema), pl.Schema(schema))
    with pytest.raises(SchemaMismatch, match=r"a\.parquet: columns (size|extra) differ"):
        read_frame(root, "a.parquet", SCHEMA, columns)


def test_a_newer_file_is_refused_before_its_columns_are_looked_at(root: Root, tmp_path: Path) -> None:
    newer = pl.DataFrame({"other": [1]}).to_arrow()
    newer = newer.replace_schema_metadata({"schema_version": f"{SCHEMA_VERSION + 1}"})
    pq.write_table(newer, tmp_path / "a.parquet")
    said = rf"has schema version {SCHEMA_VERSION + 1}, this program knows {SCHEMA_VERSION}: upgrade"
    with pytest.raises(SchemaMismatch, match=rf"a\.parquet {said}"):
        read_frame(root, "a.parquet", SCHEMA)


def test_damage_is_an_error_that_names_the_file_and_never_other_rows(root: Root, tmp_path: Path) -> None:
    frame = pl.concat([FRAME] * 200)
    write_frame(root, "t/a.parquet", frame, SCHEMA)
    whole = (tmp_path / "t/a.parquet").read_bytes()
    chance = random.Random(5)  # noqa: S311 - no secret
    for _ in range(300):
        data = bytearray(whole)
        start = chance.randrange(len(data))
        if chance.random() < 0.3:
            del data[start:]
        else:
            data[start : start + 8] = chance.randbytes(min(8, len(data) - start))
        (tmp_path / "t/a.parquet").write_bytes(data)
        says = "t/a.parquet"
        try:
            assert read_frame(root, "t/a.parquet", SCHEMA).equals(frame)
        except StorageError as error:
            says = str(error)
        assert "t/a.parquet" in says


@pytest.fixture
def root_files(root: Root) -> Root:
    given: dict[str, Any] = {"content": b"\xff\x00 bread", "size": 7, "raw_hash": "hash", "tags": ("a", "b")}
    rows = [RawDocument(doc_id=d, source="dir:d", **given) for d in ("x", "y")]
    frame = to_frame(rows, RAW_DOCUMENTS, schema_version=SCHEMA_VERSION)
    write_frame(root, "raw/p.parquet", frame, RAW_DOCUMENTS)
    return root


def test_those_columns_are_read_that_a_file_has_and_rows_go_from_all_of_them(root_files: Root) -> None:
    found = read_columns(root_files, "raw/p.parquet", ("doc_id", "node_id", "raw_hash"))
    assert found.to_dicts() == [{"doc_id": d, "raw_hash": "hash"} for d in ("x", "y")]
    assert read_columns(root_files, "raw/p.parquet", ("node_id",)).is_empty()
    before = read_frame(root_files, "raw/p.parquet", RAW_DOCUMENTS)
    schema = pq.read_schema(root_files.at("raw/p.parquet"))
    rewrite_rows(root_files, "raw/p.parquet", lambda table: table.slice(1))
    assert read_frame(root_files, "raw/p.parquet", RAW_DOCUMENTS).equals(before[1:])
    assert pq.read_schema(root_files.at("raw/p.parquet")).equals(schema, check_metadata=True)
    rewrite_rows(root_files, "raw/p.parquet", lambda table: table.slice(0, 0))
    assert read_frame(root_files, "raw/p.parquet", RAW_DOCUMENTS).is_empty()


def test_a_column_that_an_older_file_lacks_is_null_and_the_file_stays_of_its_version(root: Root) -> None:
    older = FRAME.drop("size").to_arrow().replace_schema_metadata({"schema_version": "1"})
    pq.write_table(older, root.at("a.parquet"))
    assert read_frame(root, "a.parquet", SCHEMA).equals(FRAME.with_columns(size=pl.lit(None, pl.Int64)))
    rewrite_rows(root, "a.parquet", lambda t: t.slice(1))
    assert pq.read_schema(root.at("a.parquet")).metadata[b"schema_version"] == b"1"


@pytest.mark.parametrize("data", [b"", b"PAR1 no Parquet PAR1", None], ids=["empty", "text", "a flipped bit"])
def test_a_damaged_file_is_named_and_stays(root: Root, data: bytes | None) -> None:
    frame = pl.DataFrame({"doc_id": [f"skill-{n}" for n in range(5_000)]})
    whole = write_frame(root, "bad.parquet", frame, frame.schema)
    bad = data if data is not None else whole[:2_000] + bytes([whole[2_000] ^ 0xFF]) + whole[2_001:]
    root.write("bad.parquet", bad)
    with pytest.raises(StorageError, match=r"bad\.parquet cannot be read"):
        read_columns(root, "bad.parquet", ("doc_id",))
    with pytest.raises(StorageError, match=r"bad\.parquet cannot be read"):
        rewrite_rows(root, "bad.parquet", lambda table: table)
    assert root.read("bad.parquet") == bad


ROWS = pl.Schema({"doc_id": pl.String, "value": pl.Int64})
IDS = ["rye", "Rye", "spelt", "oat#1", "owner/repo/é", "a'b", "x", "y"]
CHANGES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(IDS), max_size=4),
        st.dictionaries(st.sampled_from(IDS), st.lists(st.integers(0, 9), max_size=2), max_size=4),
    ),
    max_size=6,
)


def table_at(folder: str | Path) -> PartitionedTable:
    return PartitionedTable(Root(folder), "t", ROWS)


def rows_of(values: dict[str, list[int]]) -> pl.DataFrame:
    pairs = [(doc_id, value) for doc_id, found in values.items() for value in found]
    return pl.DataFrame(pairs, schema=ROWS, orient="row")


def times(root: Path) -> dict[str, int]:
    return {f.name: f.stat().st_mtime_ns for f in (root / "t").glob("*")}


@given(CHANGES)
@settings(max_examples=25)
def test_it_is_a_dictionary_of_documents(changes: list[tuple[set[str], dict[str, list[int]]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, model = table_at(folder), dict[str, list[int]]()
        for removed, added in changes:
            before = times(Path(folder))
            table.replace([*removed, *added, *added], rows_of(added))
            model = {k: v for k, v in model.items() if k not in removed} | added
            expected = sorted((k, v) for k, found in model.items() for v in found)
            assert sorted(table.read().iter_rows()) == expected
            touched = {name for name, at in times(Path(folder)).items() if before.get(name) != at}
            assert touched <= {f"part-{partition_of(d):02d}.parquet" for d in {*removed, *added}}
        for doc_id in IDS:
            assert sorted(table.of(doc_id).filter(pl.col("doc_id") == doc_id)["value"]) == sorted(
                model.get(doc_id, [])
            )


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(IDS[:4]), st.none() | st.integers(0, 2), st.integers(0, 9))))
)
@settings(max_examples=25)
def test_an_upsert_is_a_dictionary_by_the_unique_columns_of_which_some_may_be_null(
    changes: list[list[tuple[str, int | None, int]]],
) -> None:
    schema = pl.Schema({"doc_id": pl.String, "part": pl.Int64, "value": pl.Int64})
    with tempfile.TemporaryDirectory() as folder:
        table = PartitionedTable(Root(folder), "t", schema, unique=("doc_id", "part"))
        model = dict[tuple[str, int | None], int]()
        for rows in changes:
            table.upsert(pl.DataFrame(rows, schema, orient="row"))
            model |= {(doc_id, part): value for doc_id, part, value in rows}
            assert sorted(table.read().rows(), key=str) == sorted(
                ((*k, v) for k, v in model.items()), key=str
            )


def test_an_upsert_that_was_killed_lost_nothing_and_is_finished_by_the_next(tmp_path: Path) -> None:
    ids = ["rye", "spelt", "owner/repo/é"]
    new = rows_of({doc_id: [2] for doc_id in ids})
    for step in count():
        table = PartitionedTable(Root(tmp_path / str(step)), "t", ROWS, listed=True, unique=("doc_id",))
        table.upsert(rows_of({doc_id: [1] for doc_id in ids[:2]}))
        with suppress(Killed), dying_at(step):
            table.upsert(new)
            break
        held = dict(table.read().iter_rows())
        assert {*ids[:2]} <= held.keys() <= {*ids}
        assert {*held.values()} <= {1, 2}
        table.upsert(new)
        assert dict(table.read().iter_rows()) == dict.fromkeys(ids, 2)
        assert missing_files(table.root) == []
    assert step == 2 * len(set(map(partition_of, ids)))


@given(st.text(max_size=20))
def test_ids_that_differ_only_in_case_share_a_partition(doc_id: str) -> None:
    assert 0 <= partition_of(doc_id) < PARTITIONS
    assert partition_of(doc_id) == partition_of(doc_id.casefold())


def test_partitions_are_used_evenly() -> None:
    counts = pl.Series([partition_of(f"owner/repo/{n}") for n in range(6_400)]).value_counts()["count"]
    assert counts.len() == PARTITIONS
    assert counts.min() > 50  # type: ignore[operator]


def test_replacing_what_is_not_there_writes_nothing(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    table.replace(["rye"], rows_of({"rye": [1]}))
    before = times(tmp_path)
    table.replace([], rows_of({}))
    table.replace(["spelt", "Rye", "oat"], rows_of({}))
    assert times(tmp_path) == before


def test_rows_of_other_documents_or_with_other_columns_are_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    with pytest.raises(SchemaMismatch, match="value"):
        table.replace(["rye"], pl.DataFrame({"doc_id": ["rye"], "value": ["1"]}))
    with pytest.raises(ValueError, match="spelt"):
        table.replace(["rye"], rows_of({"rye": [1], "spelt": [2]}))
    assert table.read().is_empty()


def test_rows_keyed_by_nodes_go_with_their_document(tmp_path: Path) -> None:
    table = PartitionedTable(Root(tmp_path), "edges", EDGES, key="src_id", node_key=True)
    ids = ["rye#1", "rye", "spelt"]
    edges = [(f"{d}#{n}", f"{d}#{n + 1}", "sequence", 1.0, "rules") for d in ids for n in (0, 10)]
    table.replace(ids, pl.DataFrame(edges, schema=EDGES, orient="row"))
    table.replace(["rye"], pl.DataFrame(schema=EDGES))
    assert sorted(table.read()["src_id"]) == ["rye#1#0", "rye#1#10", "spelt#0", "spelt#10"]


@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_partitions_are_read_side_by_side_by_column_and_a_damaged_one_keeps_no_other_from_it(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    root = Root(tmp_path / "root" if place == "folder" else request.getfixturevalue("bucket"))
    table = PartitionedTable(root, "t", ROWS)
    assert table.read(columns=["value"]).schema == {"value": pl.Int64}
    ids = [f"local/m/{n}" for n in range(200)]
    table.replace(ids, rows_of({doc_id: [n] for n, doc_id in enumerate(ids)}))
    table.replace(ids[:3], rows_of({ids[0]: [-1], ids[1]: [-2]}))
    assert sorted(table.read(columns=["value"])["value"]) == [-2, -1, *range(3, 200)]
    assert len(root.files("t")) == len({partition_of(i) for i in ids}) <= PARTITIONS
    damaged, whole = partition_of(ids[7]), partition_of("local/m/8")
    assert damaged != whole
    root.write(table.file(damaged), b"PAR1 and no more")
    with pytest.raises(StorageError, match=rf"{table.file(damaged)} cannot be read as Parquet"):
        table.read()
    assert 8 in table.read([whole])["value"].to_list()
