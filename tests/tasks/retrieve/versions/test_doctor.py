from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.errors import StorageError
from storage.partitions import partition_of
from storage.state import documents_table, edges_table, nodes_table, read_runs, seen_table
from tasks.retrieve.versions.doctor import Defect, examine
from tests.support.processes import slow_but
from tests.support.roots.hand_written import SKILLS, skill
from tests.support.roots.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
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


def context(root: SkillRoot) -> str:
    asked = root.ask().page(BEES, "when to feed sugar syrup", budget=1, method="facets")
    return str(asked["context"])


def only(findings: list[Defect]) -> Defect:
    assert len(findings) == 1, findings
    return findings[0]


def test_a_sound_root_has_no_findings_and_stays_as_it_is(root: SkillRoot) -> None:
    before = {p: p.stat().st_mtime_ns for p in root.root.folder.rglob("*") if p.is_file()}
    assert examine(root.root) == []
    assert {p: p.stat().st_mtime_ns for p in root.root.folder.rglob("*") if p.is_file()} == before


def test_an_empty_root_has_no_findings(skill_root: Make) -> None:
    assert examine(skill_root({}).root) == []


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


def test_a_damaged_cache_is_removed(root: SkillRoot) -> None:
    file = next(iter(root.root.files("state/signatures", ".parquet")))
    truncate(path(root, file))
    found = only(examine(root.root))
    root.publish()
    assert (found.where, found.mended) == (file, True)
    assert examine(root.root) == []


@pytest.mark.slow
def test_what_was_seen_is_put_together_again_and_nothing_is_lost_or_comes_back(root: SkillRoot) -> None:
    root.remove("bread")
    root.publish()
    before = corpus(root)
    for file in root.root.files("state/seen", ".parquet"):
        truncate(path(root, file))
    findings = examine(root.root)
    root.market.rename(root.market.with_name("away"))
    root.crawl()
    assert corpus(root)[0] == before[0]
    root.market.with_name("away").rename(root.market)
    root.publish()
    assert all(found.mended for found in findings)
    assert {found.where for found in findings} == set(root.root.files("state/seen", ".parquet"))
    assert corpus(root) == before
    assert seen_table(root.root).read()["doc_id"].is_duplicated().sum() == 0


@pytest.mark.slow
def test_aliases_that_cannot_be_read_are_set_aside_so_that_runs_go_on(root: SkillRoot) -> None:
    root.remove("bread")
    root.write("toast", SKILLS["bread"].replace("name: bread", "name: toast"))
    root.publish()
    files = root.root.files("state/aliases", ".parquet")
    content = path(root, files[0]).read_bytes()[:-40]
    truncate(path(root, files[0]))
    found = only(examine(root.root))
    root.publish()
    assert (found.where, found.mended) == (files[0], False)
    assert path(root, f"{files[0]}.damaged").read_bytes() == content
    assert examine(root.root) == []


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


def test_damage_is_damage_to_the_readers_too(root: SkillRoot) -> None:
    spoil(path(root, f"documents/{PART}"))
    with pytest.raises(StorageError, match="cannot be read as Parquet"):
        documents_table(root.root).of(BEES)


TAGS = "lance/{}.lance/_refs/tags"


@pytest.mark.parametrize(
    ("table", "torn"),
    [
        ("skills", b""),
        pytest.param("nodes", b'{"branch":null,"version":1,"manifestSize":9}', marks=pytest.mark.slow),
        pytest.param("nodes", b"{", marks=pytest.mark.slow),
        pytest.param("skills", b'{"version": "x"}', marks=pytest.mark.slow),
        pytest.param("skills", b'{"branch":null,"version":1,"manifestSize":9}', marks=pytest.mark.slow),
    ],
)
def test_a_torn_tag_is_made_again_by_the_doctor_and_by_the_next_night(
    root: SkillRoot, table: str, torn: bytes
) -> None:
    tags = {
        file.name: json.loads(file.read_text())["version"]
        for file in path(root, TAGS.format(table)).iterdir()
    }
    label = f"{root.served().version}.json"
    path(root, f"{TAGS.format(table)}/{label}").write_bytes(torn)
    found = examine(root.root)
    assert [defect.where for defect in found if defect.mended] == [defect.where for defect in found]
    assert {defect.where for defect in found} == {f"lance/{table}.lance"}
    assert {
        file.name: json.loads(file.read_text())["version"]
        for file in path(root, TAGS.format(table)).iterdir()
    } == tags
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
