from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.blobs import BlobStore, blob_file
from storage.errors import Missing, SchemaMismatch, StorageError
from storage.partitions import PARTITIONS, PartitionedTable, partition_of
from storage.root import Root
from storage.schemas import EDGES

SCHEMA = pl.Schema({"doc_id": pl.String, "value": pl.Int64})
IDS = ["rye", "Rye", "spelt", "oat#1", "owner/repo/é", "a'b", "x", "y"]
CHANGES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(IDS), max_size=4),
        st.dictionaries(st.sampled_from(IDS), st.lists(st.integers(0, 9), max_size=2), max_size=4),
    ),
    max_size=6,
)


def table_at(folder: str | Path) -> PartitionedTable:
    return PartitionedTable(Root(folder), "t", SCHEMA)


def rows_of(values: dict[str, list[int]]) -> pl.DataFrame:
    pairs = [(doc_id, value) for doc_id, found in values.items() for value in found]
    return pl.DataFrame(pairs, schema=SCHEMA, orient="row")


def times(root: Path) -> dict[str, int]:
    return {f.name: f.stat().st_mtime_ns for f in (root / "t").glob("*")}


@given(CHANGES)
@settings(max_examples=25)
def test_it_is_a_dictionary_of_documents_on_disk(
    changes: list[tuple[set[str], dict[str, list[int]]]],
) -> None:
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


def test_rows_of_other_documents_are_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    with pytest.raises(ValueError, match="spelt"):
        table.replace(["rye"], rows_of({"rye": [1], "spelt": [2]}))
    assert table.read().is_empty()


def test_rows_with_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="value"):
        table_at(tmp_path).replace(["rye"], pl.DataFrame({"doc_id": ["rye"], "value": ["1"]}))


def test_rows_keyed_by_nodes_go_with_their_document(tmp_path: Path) -> None:
    table = PartitionedTable(Root(tmp_path), "edges", EDGES, key="src_id", node_key=True)
    ids = ["rye#1", "rye", "spelt"]
    edges = [(f"{d}#{n}", f"{d}#{n + 1}", "sequence", 1.0, "rules") for d in ids for n in (0, 10)]
    table.replace(ids, pl.DataFrame(edges, schema=EDGES, orient="row"))
    table.replace(["rye"], pl.DataFrame(schema=EDGES))
    assert sorted(table.read()["src_id"]) == ["rye#1#0", "rye#1#10", "spelt#0", "spelt#10"]


def test_a_damaged_partition_is_named_and_others_stay_readable(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    table.replace(["rye", "spelt"], rows_of({"rye": [1], "spelt": [2]}))
    damaged = table.file(partition_of("rye"))
    (tmp_path / damaged).write_bytes(b"PAR1 and no more")
    with pytest.raises(StorageError, match=damaged):
        table.read()
    assert table.read([partition_of("spelt")])["value"].to_list() == [2]


def test_only_columns_asked_for_are_read_also_of_an_empty_table(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    assert table.read(columns=["value"]).schema == {"value": pl.Int64}
    table.replace(["rye"], rows_of({"rye": [1]}))
    assert table.read(columns=["value"]).to_dicts() == [{"value": 1}]


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return Root(tmp_path / "root" if request.param == "folder" else request.getfixturevalue("bucket"))


def test_bytes_are_read_back_under_their_digest_and_lie_there_once(root: Root) -> None:
    store = BlobStore(root)
    text, binary = b"echo hello\n", bytes(range(256))
    digests = store.put([text, binary, text])
    assert digests == [hashlib.sha256(content).hexdigest() for content in (text, binary, text)]
    assert [store.read(digest) for digest in digests] == [text, binary, text]
    assert store.digests() == sorted(set(digests))
    assert root.files("blobs") == [f"blobs/{d[:2]}/{d}" for d in sorted(set(digests))]


def test_a_blob_that_is_there_is_not_written_again(root: Root) -> None:
    store = BlobStore(root)
    (digest,) = store.put([b"as it was"])
    root.write(blob_file(digest), b"not what it was")
    assert store.put([b"as it was"]) == [digest]
    assert root.read(blob_file(digest)) == b"not what it was"


def test_what_is_not_the_bytes_of_its_digest_is_not_read(root: Root) -> None:
    store = BlobStore(root)
    whole, torn, gone = store.put([b"whole", b"torn", b"gone"])
    root.write(blob_file(torn), b"to")
    store.delete([gone])
    with pytest.raises(StorageError, match="is damaged: run `skillery doctor"):
        store.read(torn)
    with pytest.raises(Missing):
        store.read(gone)
    wrong = store.unreadable([whole, torn, gone])
    assert wrong.keys() == {torn, gone}
    assert "is damaged" in wrong[torn]
    assert wrong[gone] == f"{root.at(blob_file(gone))} is missing"


def test_only_what_is_used_stays(root: Root) -> None:
    store = BlobStore(root)
    used, unused = store.put([b"used", b"unused"])
    assert store.keep_only({used, hashlib.sha256(b"elsewhere").hexdigest()}) == 1
    assert store.digests() == [used]
    assert store.keep_only({used}) == 0
    with pytest.raises(Missing):
        store.read(unused)


@given(st.text(max_size=80))
def test_no_path_outside_the_store_can_be_asked_for(digest: str) -> None:
    with pytest.raises(StorageError):
        BlobStore(Root("/nowhere")).read(digest)


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_there_are_as_many_files_as_different_contents(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = BlobStore(Root(folder))
        store.put(contents)
        store.put(reversed(contents))
        assert len(store.digests()) == len(set(contents))
