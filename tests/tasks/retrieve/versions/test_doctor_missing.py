from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from storage.blobs import BlobStore, blob_file
from storage.errors import StorageError
from storage.parquet import read_columns, write_frame
from storage.partitions import PartitionedTable, missing_files, partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table, edges_table, nodes_table, seen_table
from storage.tombstones import Forgotten, Tombstone, add_tombstones
from tasks.retrieve.versions.doctor import examine, mend_missing
from tasks.retrieve.versions.purge import purge
from tests.support.processes import slow_but
from tests.support.roots.hand_written import BIKE, SKILLS
from tests.support.roots.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
BEES = "local/market/bees"
PART = f"part-{partition_of(BEES):02d}.parquet"
TABLES = ["documents", "nodes", "edges", "state/refined", "state/parsed", "state/seen"]


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    made = skill_root(SKILLS)
    made.publish()
    return made


def corpus(root: Root) -> list[list[dict[str, object]]]:
    keys = {"documents": ["doc_id"], "nodes": ["node_id"], "edges": ["src_id", "dst_id", "edge_type"]}
    tables = documents_table(root), nodes_table(root), edges_table(root)
    again = ("run_id", "fetched_at")  # differ for what was fetched or refined again
    return [t.read().sort(keys[t.folder]).drop(again, strict=False).to_dicts() for t in tables]


def lose(root: SkillRoot, relative: str) -> None:
    path = Path(root.root.at(relative))
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("folder", slow_but({"documents"}, TABLES))
def test_a_partition_that_is_missing_is_named_and_made_again_by_the_next_night(
    root: SkillRoot, folder: str
) -> None:
    before = corpus(root.root)
    lose(root, f"{folder}/{PART}")
    [found] = examine(root.root)
    root.publish()
    assert (found.where, found.mended) == (f"{folder}/{PART}", True)
    assert found.found.endswith("is missing")
    assert corpus(root.root) == before
    assert examine(root.root) == []


@pytest.mark.parametrize("folder", slow_but({"state/seen"}, TABLES))
def test_a_table_that_is_missing_as_a_whole_is_made_again(root: SkillRoot, folder: str) -> None:
    before = corpus(root.root)
    files = root.root.files(folder, ".parquet")
    lose(root, folder)
    mended = mend_missing(root.root)
    root.publish()
    assert [found.where for found in mended] == files
    assert corpus(root.root) == before


@pytest.mark.parametrize("table", [documents_table, nodes_table, edges_table, seen_table])
def test_a_partition_that_is_missing_is_not_read_as_an_empty_one(
    root: SkillRoot, table: Callable[[Root], PartitionedTable]
) -> None:
    lost = table(root.root)
    lose(root, f"{lost.folder}/{PART}")
    for read in (lost.read, lambda: lost.of_document(BEES)):
        with pytest.raises(StorageError, match=f"{PART} is missing: run `skillery doctor"):
            read()


def test_a_file_that_is_not_the_last_one_written_is_made_again(root: SkillRoot) -> None:
    before = corpus(root.root)
    rows = documents_table(root.root).of(BEES)
    write_frame(root.root, f"documents/{PART}", rows.filter(pl.col("doc_id") != BEES), DOCUMENTS)
    [found] = examine(root.root)
    root.publish()
    assert "is not the file last written" in found.found
    assert corpus(root.root) == before


def test_a_table_made_before_manifests_gets_one_and_no_defect(root: SkillRoot) -> None:
    lose(root, "state/manifests")
    assert examine(root.root) == []
    lose(root, f"documents/{PART}")
    assert missing_files(root.root) == [f"documents/{PART}"]


def test_tombstones_that_are_missing_stop_every_run_until_they_are_back(root: SkillRoot) -> None:
    stone = Tombstone(BEES, "document", BEES)
    add_tombstones(root.root, [stone], root.now)
    [file] = root.root.files("state/forgotten", ".parquet")
    data = root.root.read(file)
    lose(root, file)
    [found] = examine(root.root)
    assert (found.where, found.mended) == (file, False)
    with pytest.raises(StorageError, match="is missing"):
        Forgotten.load(root.root)
    root.root.write(file, data)
    assert examine(root.root) == []


def test_aliases_that_are_missing_are_named_as_lost_and_runs_go_on(root: SkillRoot) -> None:
    root.write("toast", SKILLS["bread"].replace("name: bread", "name: toast"))
    root.remove("bread")
    root.publish()
    [file] = root.root.files("state/aliases", ".parquet")
    lose(root, file)
    [found] = examine(root.root)
    root.publish()
    assert (found.where, found.mended) == (file, False)
    assert found.done.startswith("lost")


def test_a_missing_table_of_a_backfill_is_left_to_its_next_backfill(root: SkillRoot) -> None:
    day = Root(root.root.at("backfill/date=2025-03-01"))
    seen_table(day).replace([BEES], seen_table(root.root).of_document(BEES))
    lose(root, f"backfill/date=2025-03-01/state/seen/{PART}")
    [found] = examine(root.root)
    assert found.mended
    assert examine(root.root) == []


def test_forgetting_a_document_keeps_the_manifest_true(root: SkillRoot) -> None:
    add_tombstones(root.root, [Tombstone(BEES, "document", BEES)], root.now)
    purge(root.root, Forgotten.load(root.root), run_id=root.run_id)
    assert read_columns(root.root, f"documents/{PART}", ["doc_id"]).filter(doc_id=BEES).is_empty()
    assert examine(root.root) == []


@pytest.mark.parametrize("folder", slow_but({"raw/documents"}, ["raw/documents", "raw/listings", "dropped"]))
def test_what_is_missing_and_nowhere_else_is_named_until_its_loss_is_accepted(
    root: SkillRoot, folder: str
) -> None:
    root.write("empty", "")
    root.publish()
    file = root.root.files(folder, ".parquet")[0]
    lose(root, file)
    [found] = examine(root.root)
    root.publish()
    assert (found.where, found.mended) == (file, False)
    assert [again.where for again in examine(root.root)] == [file]
    lose(root, f"state/manifests/{file}.json")
    assert examine(root.root) == []


@pytest.mark.parametrize(
    "folder", slow_but({"state/signatures"}, ["state/near", "state/signatures", "state/aliases", "documents"])
)
def test_a_file_of_other_columns_is_a_damaged_one(root: SkillRoot, folder: str) -> None:
    root.write("toast", SKILLS["bread"].replace("name: bread", "name: toast"))
    root.remove("bread")
    root.publish()
    before = corpus(root.root)
    file = next(iter(root.root.files(folder, ".parquet") or [f"{folder}/{PART}"]))
    root.root.write(file, b"")
    pl.DataFrame({"flour": [1, 2]}).write_parquet(root.root.at(file))
    assert [found.where for found in examine(root.root)] == [file]
    root.publish()
    assert corpus(root.root) == before


RUN = b"echo run\n"
BLOB = blob_file(hashlib.sha256(RUN).hexdigest())


@pytest.fixture
def root_blobs(skill_root: Make) -> SkillRoot:
    made = skill_root({"bees": SKILLS["bees"], "bike": BIKE})
    made.write_file("bees", "run.sh", RUN)
    made.publish()
    return made


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("harm", slow_but({Path.unlink}, [tear, Path.unlink]))
def test_a_lost_or_damaged_blob_is_made_again_by_the_next_run(
    root_blobs: SkillRoot, harm: Callable[[Path], None]
) -> None:
    harm(Path(root_blobs.root.at(BLOB)))
    (found,) = examine(root_blobs.root)
    assert (found.where, found.mended) == (BLOB, True)
    assert BlobStore(root_blobs.root).digests() == []
    root_blobs.crawl()
    assert root_blobs.root.read(BLOB) == RUN
    assert examine(root_blobs.root) == []
    assert root_blobs.parse()["documents"] == 0


def test_a_damaged_blob_that_nothing_names_goes(root_blobs: SkillRoot) -> None:
    (stray,) = BlobStore(root_blobs.root).put([b"left by a killed run"])
    tear(Path(root_blobs.root.at(blob_file(stray))))
    (found,) = examine(root_blobs.root)
    assert (found.where, found.mended) == (blob_file(stray), True)
    assert BlobStore(root_blobs.root).digests() == [hashlib.sha256(RUN).hexdigest()]
