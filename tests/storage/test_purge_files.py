from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.errors import StorageError
from storage.parquet import read_columns, read_frame, rewrite_rows, write_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, SCHEMA_VERSION, RawDocument, to_frame


@pytest.fixture
def root(tmp_path: Path) -> Root:
    rows = [
        RawDocument(
            doc_id=d, source="dir:d", content=b"\xff\x00 bread", size=7, raw_hash="hash", tags=("a", "b")
        )
        for d in ("x", "y")
    ]
    frame = to_frame(rows, RAW_DOCUMENTS, schema_version=SCHEMA_VERSION)
    write_frame(Root(tmp_path), "raw/p.parquet", frame, RAW_DOCUMENTS)
    return Root(tmp_path)


def test_those_columns_are_read_that_a_file_has(root: Root) -> None:
    found = read_columns(root, "raw/p.parquet", ("doc_id", "node_id", "raw_hash"))
    assert found.to_dicts() == [{"doc_id": d, "raw_hash": "hash"} for d in ("x", "y")]
    assert read_columns(root, "raw/p.parquet", ("node_id",)).is_empty()


def test_rows_go_and_the_file_is_one_of_its_kind_still(root: Root) -> None:
    before = read_frame(root, "raw/p.parquet", RAW_DOCUMENTS)
    schema = pq.read_schema(root.at("raw/p.parquet"))
    rewrite_rows(root, "raw/p.parquet", lambda table: table.slice(1))
    assert read_frame(root, "raw/p.parquet", RAW_DOCUMENTS).equals(before[1:])
    assert pq.read_schema(root.at("raw/p.parquet")).equals(schema, check_metadata=True)
    rewrite_rows(root, "raw/p.parquet", lambda table: table.slice(0, 0))
    assert read_frame(root, "raw/p.parquet", RAW_DOCUMENTS).is_empty()


def test_a_file_of_an_older_version_stays_one(root: Root) -> None:
    older = pl.DataFrame({"doc_id": ["x", "y"]})
    write_frame(root, "old.parquet", older, older.schema)
    table = pq.read_table(root.at("old.parquet"))
    pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), root.at("old.parquet"))
    rewrite_rows(root, "old.parquet", lambda t: t.slice(1))
    assert pq.read_schema(root.at("old.parquet")).metadata[b"schema_version"] == b"1"


@pytest.mark.parametrize("data", [b"", b"PAR1 no Parquet PAR1"])
def test_a_damaged_file_is_named_and_stays(root: Root, data: bytes) -> None:
    root.write("bad.parquet", data)
    for act in (
        lambda: read_columns(root, "bad.parquet", ("doc_id",)),
        lambda: rewrite_rows(root, "bad.parquet", lambda table: table),
    ):
        with pytest.raises(StorageError, match=r"bad\.parquet cannot be read as Parquet"):
            act()
    assert root.read("bad.parquet") == data


def test_a_page_with_flipped_bits_is_damage(root: Root) -> None:
    frame = pl.DataFrame({"doc_id": [f"skill-{n}" for n in range(5_000)]})
    write_frame(root, "long.parquet", frame, frame.schema)
    data = bytearray(root.read("long.parquet"))
    data[2_000] ^= 0xFF
    root.write("long.parquet", bytes(data))
    with pytest.raises(StorageError, match=r"long\.parquet"):
        read_columns(root, "long.parquet", ("doc_id",))
