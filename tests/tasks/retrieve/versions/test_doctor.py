"""The doctor: files that are damaged, missing or left by a killed write, found and made again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.blobs import BlobStore, blob_file
from storage.errors import StorageError
from storage.parquet import read_columns, write_frame
from storage.partitions import PartitionedTable, missing_files, partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table, edges_table, nodes_table, read_runs, seen_table
from storage.tombstones import Forgotten, Tombstone, add_tombstones
from tasks.retrieve.versions.doctor import Defect, examine, mend_missing
from tasks.retrieve.versions.purge import purge
from tests.support.processes import slow_but
from tests.support.roots.hand_written import BIKE, SKILLS, skill
from tests.support.roots.skill_root import Make, SkillRoot

BEES = "local/market/bees"


PART = f"part-{partition_of(BEES):02d}.parquet"


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    """Two versions published: the second has other bees than the first."""
    made = skill_root(SKILLS)
    made.publish()
    made.write("bees", SKILLS["bees"].replace("in October", "in September"))
    made.publish()
    return made


def path(root: SkillRoot, relative: str) -> Path:
    return Path(root.root.at(relative))


def spoil(file: Path) -> None:
    """Flip the last byte of a file's first column, as a bad disk does."""
    data = bytearray(file.read_bytes())
    first = pq.ParquetFile(file).metadata.row_group(0).column(0)
    start = first.dictionary_page_offset or first.data_page_offset
    data[start + first.total_compressed_size - 1] ^= 0xFF
    file.write_bytes(data)


def tear_schema(file: Path) -> None:
    """Flip a byte within the name of a file's last column: no text any more."""
    data = bytearray(file.read_bytes())
    name = pq.ParquetFile(file).schema_arrow.names[-1].encode()
    data[data.rindex(name, 0, data.rindex(b"ARROW:schema")) + 1] ^= 0xFF
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def corpus(root: SkillRoot) -> list[list[dict[str, object]]]:
    tables = documents_table(root.root), nodes_table(root.root), edges_table(root.root)
    frames = [table.read() for table in tables]
    keys = ["doc_id"], ["node_id"], ["src_id", "dst_id", "edge_type"]
    return [
        frame.sort(key).drop("run_id", "fetched_at", strict=False).to_dicts()
        for frame, key in zip(frames, keys, strict=True)
    ]


def only(findings: list[Defect]) -> Defect:
    assert len(findings) == 1, findings
    return findings[0]


def test_a_sound_or_an_empty_root_has_no_findings_and_stays_as_it_is(root: SkillRoot, tmp_path: Path) -> None:
    # A sound root has no findings and stays as it is.
    before = {p: p.stat().st_mtime_ns for p in root.root.folder.rglob("*") if p.is_file()}
    assert examine(root.root) == []
    assert {p: p.stat().st_mtime_ns for p in root.root.folder.rglob("*") if p.is_file()} == before
    # An empty root has no findings.
    assert examine(Root(str(tmp_path / "empty"))) == []


def test_what_a_killed_write_left_is_removed(root: SkillRoot) -> None:
    left = path(root, f"documents/{PART}.0a1b2c3d.tmp")
    left.write_bytes(b"PAR1 and no more")
    found = only(examine(root.root))
    assert (found.where, found.mended) == (f"documents/{PART}.0a1b2c3d.tmp", True)
    assert not left.exists()


@pytest.mark.parametrize(("folder", "injure"), [("documents", spoil), ("nodes", tear_schema)])
def test_a_damaged_table_is_made_anew_as_it_was_by_the_next_run(
    root: SkillRoot, folder: str, injure: Callable[[Path], None]
) -> None:
    before = corpus(root)
    injure(path(root, f"{folder}/{PART}"))
    found = only(examine(root.root))
    root.publish()
    assert (found.where, found.mended) == (f"{folder}/{PART}", True)
    assert corpus(root) == before
    assert examine(root.root) == []


def test_a_node_that_stands_there_twice_is_found_and_made_anew_once(root: SkillRoot) -> None:
    before = corpus(root)
    rows = nodes_table(root.root).of(BEES)
    nodes_table(root.root).put(partition_of(BEES), pl.concat([rows, rows.head(1)]))
    found = only(examine(root.root))
    root.publish()
    assert found.found.startswith("1 rows stand there twice")
    assert corpus(root) == before


@pytest.mark.parametrize(
    "name", slow_but({"sources.json"}, ["sources.json", "licences.json", "runs/20250302.json"])
)
def test_a_note_between_runs_that_cannot_be_read_is_removed(root: SkillRoot, name: str) -> None:
    before = corpus(root)
    path(root, f"state/{name}").parent.mkdir(exist_ok=True)
    path(root, f"state/{name}").write_bytes(b'{"sources": \xff')
    found = only(examine(root.root))
    root.publish()
    assert (found.where, found.mended) == (f"state/{name}", True)
    assert corpus(root) == before
    assert examine(root.root) == []


@pytest.mark.parametrize("folder", slow_but({"raw/documents"}, ["raw/documents", "dropped"]))
def test_what_is_nowhere_else_is_left_and_told(root: SkillRoot, folder: str) -> None:
    root.write("empty", "")
    root.publish()
    file = root.root.files(folder, ".parquet")[0]
    truncate(path(root, file))
    found = only(examine(root.root))
    assert (found.where, found.mended) == (file, False)
    assert root.root.exists(file)


def test_tables_of_a_backfill_are_mended_too(root: SkillRoot) -> None:
    place = "backfill/date=2025-03-02"
    for folder in ("documents", "state/refined"):
        target = path(root, f"{place}/{folder}/{PART}")
        target.parent.mkdir(parents=True)
        target.write_bytes(path(root, f"{folder}/{PART}").read_bytes())
    truncate(path(root, f"{place}/documents/{PART}"))
    found = only(examine(root.root))
    assert found.mended
    assert root.root.files(place) == []


TAGS = "lance/{}.lance/_refs/tags"


@pytest.mark.parametrize(
    ("table", "torn"),
    [
        ("skills", b""),
        pytest.param("nodes", b'{"branch":null,"version":1,"manifestSize":9}', marks=pytest.mark.slow),
    ],
)
def test_a_torn_tag_is_made_again_by_the_doctor_and_by_the_next_night(
    root: SkillRoot, table: str, torn: bytes
) -> None:
    def tags() -> dict[str, int]:
        files = path(root, TAGS.format(table)).iterdir()
        return {file.name: json.loads(file.read_text())["version"] for file in files}

    before = tags()
    label = f"{root.served().version}.json"
    path(root, f"{TAGS.format(table)}/{label}").write_bytes(torn)
    found = examine(root.root)
    assert [defect.where for defect in found if defect.mended] == [defect.where for defect in found]
    assert {defect.where for defect in found} == {f"lance/{table}.lance"}
    assert tags() == before
    path(root, f"{TAGS.format(table)}/{label}").write_bytes(torn)
    root.write("bike", skill("bike", "Mends bicycles", "Patch the tube."))
    assert root.publish().changed
    assert examine(root.root) == []


@pytest.mark.parametrize("data", [None, b"[]", b'{"classes": 3}'])
def test_classes_of_licences_that_are_gone_or_damaged_are_worked_out_again(
    root: SkillRoot, data: bytes | None
) -> None:
    file = path(root, "state/licences.json")
    before = file.read_text()
    file.unlink() if data is None else file.write_bytes(data)
    found = only(examine(root.root))
    assert (found.where, found.mended) == ("state/licences.json", True)
    assert file.read_text() == before
    assert root.ask().search("bees")["results"]


@pytest.mark.parametrize("data", [b"{}", b'{"run_id": "x", "sources": {}}'])
def test_a_record_of_a_run_of_another_shape_is_left_out_and_removed(root: SkillRoot, data: bytes) -> None:
    path(root, "state/runs").mkdir(exist_ok=True)
    path(root, "state/runs/20250301T000000-abcdef.json").write_bytes(data)
    assert read_runs(root.root) == []
    assert only(examine(root.root)).where == "state/runs/20250301T000000-abcdef.json"
    assert examine(root.root) == []


TABLES = ["documents", "nodes", "edges", "state/refined", "state/parsed", "state/seen"]


@pytest.fixture
def once(skill_root: Make) -> SkillRoot:
    """One version published."""
    made = skill_root(SKILLS)
    made.publish()
    return made


def lose(root: SkillRoot, relative: str) -> None:
    path = Path(root.root.at(relative))
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("folder", slow_but({"documents"}, TABLES))
def test_a_partition_that_is_missing_is_named_and_made_again_by_the_next_night(
    once: SkillRoot, folder: str
) -> None:
    before = corpus(once)
    lose(once, f"{folder}/{PART}")
    [found] = examine(once.root)
    once.publish()
    assert (found.where, found.mended) == (f"{folder}/{PART}", True)
    assert found.found.endswith("is missing")
    assert corpus(once) == before
    assert examine(once.root) == []


@pytest.mark.parametrize("folder", slow_but({"state/seen"}, TABLES))
def test_a_table_that_is_missing_as_a_whole_is_made_again(once: SkillRoot, folder: str) -> None:
    before = corpus(once)
    files = once.root.files(folder, ".parquet")
    lose(once, folder)
    mended = mend_missing(once.root)
    once.publish()
    assert [found.where for found in mended] == files
    assert corpus(once) == before


@pytest.mark.parametrize("table", [documents_table, nodes_table, edges_table, seen_table])
def test_a_partition_that_is_missing_is_not_read_as_an_empty_one(
    once: SkillRoot, table: Callable[[Root], PartitionedTable]
) -> None:
    lost = table(once.root)
    lose(once, f"{lost.folder}/{PART}")
    for read in (lost.read, lambda: lost.of_document(BEES)):
        with pytest.raises(StorageError, match=f"{PART} is missing: run `skillery doctor"):
            read()


def test_a_file_that_is_not_the_last_one_written_is_made_again(once: SkillRoot) -> None:
    before = corpus(once)
    rows = documents_table(once.root).of(BEES)
    write_frame(once.root, f"documents/{PART}", rows.filter(pl.col("doc_id") != BEES), DOCUMENTS)
    [found] = examine(once.root)
    once.publish()
    assert "is not the file last written" in found.found
    assert corpus(once) == before


def test_a_table_made_before_manifests_gets_one_and_no_defect(once: SkillRoot) -> None:
    lose(once, "state/manifests")
    assert examine(once.root) == []
    lose(once, f"documents/{PART}")
    assert missing_files(once.root) == [f"documents/{PART}"]


def test_tombstones_that_are_missing_stop_every_run_until_they_are_back(once: SkillRoot) -> None:
    stone = Tombstone(BEES, "document", BEES)
    add_tombstones(once.root, [stone], once.now)
    [file] = once.root.files("state/forgotten", ".parquet")
    data = once.root.read(file)
    lose(once, file)
    [found] = examine(once.root)
    assert (found.where, found.mended) == (file, False)
    with pytest.raises(StorageError, match="is missing"):
        Forgotten.load(once.root)
    once.root.write(file, data)
    assert examine(once.root) == []


def test_aliases_that_are_missing_are_named_as_lost_and_runs_go_on(once: SkillRoot) -> None:
    once.write("toast", SKILLS["bread"].replace("name: bread", "name: toast"))
    once.remove("bread")
    once.publish()
    [file] = once.root.files("state/aliases", ".parquet")
    lose(once, file)
    [found] = examine(once.root)
    once.publish()
    assert (found.where, found.mended) == (file, False)
    assert found.done.startswith("lost")


def test_a_missing_table_of_a_backfill_is_left_to_its_next_backfill(once: SkillRoot) -> None:
    day = Root(once.root.at("backfill/date=2025-03-01"))
    seen_table(day).replace([BEES], seen_table(once.root).of_document(BEES))
    lose(once, f"backfill/date=2025-03-01/state/seen/{PART}")
    [found] = examine(once.root)
    assert found.mended
    assert examine(once.root) == []


def test_forgetting_a_document_keeps_the_manifest_true(once: SkillRoot) -> None:
    add_tombstones(once.root, [Tombstone(BEES, "document", BEES)], once.now)
    purge(once.root, Forgotten.load(once.root), run_id=once.run_id)
    assert read_columns(once.root, f"documents/{PART}", ["doc_id"]).filter(doc_id=BEES).is_empty()
    assert examine(once.root) == []


@pytest.mark.parametrize("folder", slow_but({"raw/documents"}, ["raw/documents", "raw/listings", "dropped"]))
def test_what_is_missing_and_nowhere_else_is_named_until_its_loss_is_accepted(
    once: SkillRoot, folder: str
) -> None:
    once.write("empty", "")
    once.publish()
    file = once.root.files(folder, ".parquet")[0]
    lose(once, file)
    [found] = examine(once.root)
    once.publish()
    assert (found.where, found.mended) == (file, False)
    assert [again.where for again in examine(once.root)] == [file]
    lose(once, f"state/manifests/{file}.json")
    assert examine(once.root) == []


@pytest.mark.parametrize(
    "folder", slow_but({"state/signatures"}, ["state/near", "state/signatures", "state/aliases", "documents"])
)
def test_a_file_of_other_columns_is_a_damaged_one(once: SkillRoot, folder: str) -> None:
    once.write("toast", SKILLS["bread"].replace("name: bread", "name: toast"))
    once.remove("bread")
    once.publish()
    before = corpus(once)
    file = next(iter(once.root.files(folder, ".parquet") or [f"{folder}/{PART}"]))
    once.root.write(file, b"")
    pl.DataFrame({"flour": [1, 2]}).write_parquet(once.root.at(file))
    assert [found.where for found in examine(once.root)] == [file]
    once.publish()
    assert corpus(once) == before


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
