from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from storage.errors import StorageError
from storage.lance import NODES, TableWriter, connect, nodes_schema
from storage.parquet import write_frame
from storage.partitions import partition_of
from storage.schemas import NODES as NODE_COLUMNS
from storage.served import SERVED
from storage.state import documents_table, edges_table, nodes_table
from tasks.retrieve.doctor import Finding, examine
from tests.hand_written import SKILLS
from tests.skill_root import SkillRoot

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
    """Flip a byte among a file's first values, as a bad disk does."""
    data = bytearray(file.read_bytes())
    data[len(data) // 8] ^= 0xFF
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def corpus(root: SkillRoot) -> list[list[dict[str, object]]]:
    tables = documents_table(root.root), nodes_table(root.root), edges_table(root.root)
    frames = [table.read() for table in tables]
    keys = ["doc_id"], ["node_id"], ["src_id", "dst_id", "edge_type"]
    return [
        frame.sort(key).drop("run_id", strict=False).to_dicts()
        for frame, key in zip(frames, keys, strict=True)
    ]


def context(root: SkillRoot) -> str:
    asked = root.ask().page(BEES, "when to feed sugar syrup", budget=1, method="facets")
    return str(asked["context"])


def only(findings: list[Finding]) -> Finding:
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


@pytest.mark.parametrize("injure", [spoil, truncate])
@pytest.mark.parametrize("folder", ["documents", "nodes", "edges", "state/refined", "state/parsed"])
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
    write_frame(root.root, f"nodes/{PART}", pl.concat([rows, rows.head(1)]), NODE_COLUMNS)

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


@pytest.mark.parametrize("folder", ["raw/documents", "state/seen", "dropped"])
def test_what_is_nowhere_else_is_left_and_told(root: SkillRoot, folder: str) -> None:
    root.write("empty", "")
    root.publish()
    file = root.root.files(folder, ".parquet")[0]
    truncate(path(root, file))

    found = only(examine(root.root))

    assert (found.where, found.mended) == (file, False)
    assert root.root.exists(file)


@pytest.mark.parametrize("content", [None, "{", '{"version": "v-1"}'])
def test_a_pointer_that_is_lost_or_damaged_is_put_back(root: SkillRoot, content: str | None) -> None:
    last = root.served()
    path(root, SERVED).unlink() if content is None else path(root, SERVED).write_text(content)

    found = only(examine(root.root))

    assert (found.where, found.mended) == (SERVED, True)
    assert root.served() == last


def test_where_a_served_table_cannot_be_read_the_version_before_is_served(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish()
    first, files = root.served(), set(path(root, "lance/nodes.lance/data").glob("*.lance"))
    root.write("bees", SKILLS["bees"].replace("in October", "in September"))
    root.publish()
    for file in set(path(root, "lance/nodes.lance/data").glob("*.lance")) - files:
        file.write_bytes(b"")

    found = only(examine(root.root))

    assert (found.where, found.done) == (SERVED, f"{first.version} is served again")
    assert root.served() == first
    assert "in October" in context(root)


def test_a_table_whose_newest_manifest_is_damaged_is_told(root: SkillRoot) -> None:
    manifests = path(root, "lance/nodes.lance/_versions").glob("*.manifest")
    min(manifests).write_bytes(b"no manifest")  # LanceDB names them so that the newest comes first

    found = only(examine(root.root))

    assert "table nodes" in found.found
    assert (found.where, found.mended) == (SERVED, False)


def test_a_table_whose_rows_cannot_be_read_is_found_however_well_it_opens(root: SkillRoot) -> None:
    for file in path(root, "lance/nodes.lance/data").glob("*.lance"):
        file.write_bytes(b"")

    found = only(examine(root.root))

    assert "table nodes" in found.found
    assert (found.where, found.mended) == (SERVED, False)


def test_after_what_the_doctor_asks_for_the_next_run_publishes_again(root: SkillRoot) -> None:
    for file in path(root, "lance/nodes.lance/data").glob("*.lance"):
        file.write_bytes(b"")
    examine(root.root)
    root.root.delete("lance")
    root.root.delete(SERVED)

    root.publish()

    assert "in September" in context(root)
    assert examine(root.root) == []


def test_a_damaged_record_of_a_version_is_removed_and_what_is_served_stays(root: SkillRoot) -> None:
    last = root.served()
    records = root.root.files("state/published", ".json")
    path(root, records[0]).write_text("{")

    found = only(examine(root.root))

    assert (found.where, found.mended) == (records[0], True)
    assert root.served() == last


@pytest.mark.parametrize(("file", "content"), [("rows.npy", b""), ("index.json", b"{")])
def test_a_damaged_routing_index_is_removed_and_search_answers_as_before(
    root: SkillRoot, file: str, content: bytes
) -> None:
    asked = "feed sugar syrup to a colony", 3
    before = [r["doc_id"] for r in root.ask().search(*asked)["results"]]
    folder = f"routing/{root.served().version}.{root.served().skills}"
    path(root, f"{folder}/{file}").write_bytes(content)

    found = only(examine(root.root))

    assert (found.where, found.mended) == (folder, True)
    assert [r["doc_id"] for r in root.ask().search(*asked)["results"]] == before


def test_what_a_run_that_died_wrote_to_a_table_does_no_harm(root: SkillRoot) -> None:
    model = {k: v for k, v in root.served().model.items() if k != "path"}
    writer = TableWriter(connect(root.root), NODES, nodes_schema(model), root.served().nodes)
    writer.delete([BEES])

    assert examine(root.root) == []
    assert "in September" in context(root)


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
