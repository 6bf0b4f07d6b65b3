from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.errors import SchemaMismatch, StorageError
from storage.parquet import read_columns, read_frame, rewrite_rows, write_frame
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

_COLUMNS: dict[str, Any] = {"doc_id": pl.String, "size": pl.Int64, "at": pl.Datetime("us", "UTC")}
SCHEMA = pl.Schema(_COLUMNS)
FRAME = pl.DataFrame(
    {"doc_id": ["rye", "spelt"], "size": [1, None], "at": [datetime(2026, 1, 1, tzinfo=UTC), None]},
    schema=SCHEMA,
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_a_frame_round_trips(root: Root) -> None:
    write_frame(root, "t/a.parquet", FRAME, SCHEMA)
    assert read_frame(root, "t/a.parquet", SCHEMA).equals(FRAME)


@pytest.mark.parametrize(
    "schema", [RAW_DOCUMENTS, DOCUMENTS, NODES, EDGES, DROPPED, LISTINGS, SEEN, REFINED, PARSED, ALIASES]
)
def test_every_record_keeps_its_types_even_without_rows(root: Root, schema: pl.Schema) -> None:
    write_frame(root, "a.parquet", pl.DataFrame(schema=schema), schema)
    assert read_frame(root, "a.parquet", schema).schema == schema


def test_fixed_length_vectors_keep_their_type(root: Root) -> None:
    schema = pl.Schema({"vector": pl.Array(pl.Float32, 3)})
    frame = pl.DataFrame({"vector": [[1.0, 0.5, 0.25]]}, schema=schema)
    write_frame(root, "a.parquet", frame, schema)
    assert read_frame(root, "a.parquet", schema).equals(frame)


def test_the_columns_asked_for_come_in_the_order_of_the_schema(root: Root) -> None:
    write_frame(root, "a.parquet", FRAME, SCHEMA)
    assert read_frame(root, "a.parquet", SCHEMA, ["at", "doc_id"]).columns == ["doc_id", "at"]


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
    newer = (
        pl.DataFrame({"other": [1]})
        .to_arrow()
        .replace_schema_metadata({"schema_version": str(SCHEMA_VERSION + 1)})
    )
    pq.write_table(newer, tmp_path / "a.parquet")
    said = (
        rf"a\.parquet has schema version {SCHEMA_VERSION + 1}, this program knows {SCHEMA_VERSION}: upgrade"
    )
    with pytest.raises(SchemaMismatch, match=said):
        read_frame(root, "a.parquet", SCHEMA)


def test_a_column_that_an_older_file_lacks_is_null(root: Root, tmp_path: Path) -> None:
    older = FRAME.drop("size").to_arrow().replace_schema_metadata({"schema_version": "1"})
    pq.write_table(older, tmp_path / "a.parquet")
    found = read_frame(root, "a.parquet", SCHEMA)
    assert found.schema == SCHEMA
    assert found["size"].null_count() == FRAME.height
    assert found["doc_id"].to_list() == FRAME["doc_id"].to_list()


def test_damage_anywhere_is_an_error_that_names_the_file_and_never_other_rows(
    root: Root, tmp_path: Path
) -> None:
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
        says = ""
        try:
            assert read_frame(root, "t/a.parquet", SCHEMA).equals(frame)
        except StorageError as error:
            says = str(error)
        assert not says or "t/a.parquet" in says


def test_a_missing_file_is_named(root: Root) -> None:
    with pytest.raises(StorageError, match=r"t/a\.parquet is missing"):
        read_frame(root, "t/a.parquet", SCHEMA)


@pytest.fixture
def root_files(tmp_path: Path) -> Root:
    rows = [
        RawDocument(
            doc_id=d, source="dir:d", content=b"\xff\x00 bread", size=7, raw_hash="hash", tags=("a", "b")
        )
        for d in ("x", "y")
    ]
    frame = to_frame(rows, RAW_DOCUMENTS, schema_version=SCHEMA_VERSION)
    write_frame(Root(tmp_path), "raw/p.parquet", frame, RAW_DOCUMENTS)
    return Root(tmp_path)


def test_those_columns_are_read_that_a_file_has(root_files: Root) -> None:
    found = read_columns(root_files, "raw/p.parquet", ("doc_id", "node_id", "raw_hash"))
    assert found.to_dicts() == [{"doc_id": d, "raw_hash": "hash"} for d in ("x", "y")]
    assert read_columns(root_files, "raw/p.parquet", ("node_id",)).is_empty()


def test_rows_go_and_the_file_is_one_of_its_kind_still(root_files: Root) -> None:
    before = read_frame(root_files, "raw/p.parquet", RAW_DOCUMENTS)
    schema = pq.read_schema(root_files.at("raw/p.parquet"))
    rewrite_rows(root_files, "raw/p.parquet", lambda table: table.slice(1))
    assert read_frame(root_files, "raw/p.parquet", RAW_DOCUMENTS).equals(before[1:])
    assert pq.read_schema(root_files.at("raw/p.parquet")).equals(schema, check_metadata=True)
    rewrite_rows(root_files, "raw/p.parquet", lambda table: table.slice(0, 0))
    assert read_frame(root_files, "raw/p.parquet", RAW_DOCUMENTS).is_empty()


def test_a_file_of_an_older_version_stays_one(root_files: Root) -> None:
    older = pl.DataFrame({"doc_id": ["x", "y"]})
    write_frame(root_files, "old.parquet", older, older.schema)
    table = pq.read_table(root_files.at("old.parquet"))
    pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), root_files.at("old.parquet"))
    rewrite_rows(root_files, "old.parquet", lambda t: t.slice(1))
    assert pq.read_schema(root_files.at("old.parquet")).metadata[b"schema_version"] == b"1"


@pytest.mark.parametrize("data", [b"", b"PAR1 no Parquet PAR1"])
def test_a_damaged_file_is_named_and_stays(root_files: Root, data: bytes) -> None:
    root_files.write("bad.parquet", data)
    for act in (
        lambda: read_columns(root_files, "bad.parquet", ("doc_id",)),
        lambda: rewrite_rows(root_files, "bad.parquet", lambda table: table),
    ):
        with pytest.raises(StorageError, match=r"bad\.parquet cannot be read as Parquet"):
            act()
    assert root_files.read("bad.parquet") == data


def test_a_page_with_flipped_bits_is_damage(root_files: Root) -> None:
    frame = pl.DataFrame({"doc_id": [f"skill-{n}" for n in range(5_000)]})
    write_frame(root_files, "long.parquet", frame, frame.schema)
    data = bytearray(root_files.read("long.parquet"))
    data[2_000] ^= 0xFF
    root_files.write("long.parquet", bytes(data))
    with pytest.raises(StorageError, match=r"long\.parquet"):
        read_columns(root_files, "long.parquet", ("doc_id",))
