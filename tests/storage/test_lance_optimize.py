"""What Lance says of a manifest by itself, and what is done to a table when its load is finished."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa
import pytest
from lancedb.index import FTS

from storage.lance.tables import (
    INDUCED,
    NODES,
    TableWriter,
    connect,
    manifest_reads,
    open_at,
    schema_of,
    size_of,
)
from storage.root import Root

MODEL = {"name": "m", "revision": "1", "dimension": 4, "template": "{name}"}
SCHEMA = schema_of(INDUCED, MODEL)


@pytest.fixture
def db(tmp_path: Path) -> lancedb.DBConnection:
    return connect(Root(tmp_path))


def load(db: lancedb.DBConnection, base: int | None, *ids: str, gone: str = "", merge: bool = False) -> int:
    """Write rows with these ids as texts, and return the version."""
    writer = TableWriter(db, INDUCED, SCHEMA, base)
    writer.delete([gone])
    given = {"row_id": list(ids), "text": list(ids), "vector": [[1.0, 0, 0, 0]] * len(ids)}
    writer.add(pa.table({f.name: given.get(f.name, [None] * len(ids)) for f in SCHEMA}, schema=SCHEMA))
    return writer.finish(["row_id"], merge=merge)


def held(db: lancedb.DBConnection, version: int) -> set[str]:
    return set(open_at(db, INDUCED, version).search().to_arrow()["row_id"].to_pylist())


def test_a_manifest_reads_wherever_it_lies_unless_its_own_bytes_are_wrong(
    tmp_path: Path,
) -> None:
    TableWriter(connect(Root(tmp_path)), NODES, schema_of(NODES, MODEL), None)
    for manifest in (tmp_path / "lance/nodes.lance/_versions").glob("*.manifest"):
        data = manifest.read_bytes()
        assert manifest_reads(manifest.name, data)
        assert not manifest_reads(manifest.name, data[:-20])
        assert not manifest_reads(manifest.name, b"")


def test_an_index_of_words_that_an_earlier_version_made_goes_with_the_next_load(
    db: lancedb.DBConnection,
) -> None:
    base = load(db, None, "rye")
    table = db.open_table(INDUCED)
    table.create_index("text", config=FTS())
    asked = table.search("rye", query_type="fts", fts_columns="text")
    assert asked.to_arrow().num_rows == 1

    version = load(db, int(table.version), "oat")

    assert [i.columns for i in open_at(db, INDUCED, version).list_indices()] == [["row_id"]]
    assert held(db, base) == {"rye"}
    assert held(db, version) == {"oat", "rye"}


def test_files_are_merged_where_there_are_many_or_it_is_asked_for(db: lancedb.DBConnection) -> None:
    base, files = load(db, None, "night-0"), []
    for n in range(1, 30):
        base = load(db, base, f"night-{n}", f"once-{n}", gone=f"once-{n - 1}")
        files.append(size_of(open_at(db, INDUCED, base))[1])
    assert files == [*range(2, 21), *range(2, 12)]  # what is not indexed yet is not merged
    assert held(db, base) == {*(f"night-{n}" for n in range(30)), "once-29"}

    merged = load(db, base, merge=True)

    assert size_of(open_at(db, INDUCED, merged))[1] == 1
    assert held(db, merged) == held(db, base)
