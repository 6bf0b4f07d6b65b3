"""What is published and cannot be read: found, and something sound is served."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import lancedb
import pytest

from storage.errors import SchemaMismatch, StorageError
from storage.lance import tables
from storage.lance.served import SERVED, published_versions, write_served
from storage.lance.tables import NODES, TableWriter, schema_of
from storage.lance.tables import SKILLS as SKILLS_TABLE
from storage.lance.versions import tag
from storage.root import Root
from storage.schemas import SCHEMA_VERSION
from tasks.retrieve.versions.doctor import Defect, examine
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Make, SkillRoot
from tests.support.roots.vendor import connect

BEES = "local/market/bees"


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


def context(root: SkillRoot) -> str:
    asked = root.ask().page(BEES, "when to feed sugar syrup", budget=1, method="facets")
    return str(asked["context"])


def only(findings: list[Defect]) -> Defect:
    assert len(findings) == 1, findings
    return findings[0]


def test_a_flipped_bit_of_an_index_is_told_in_a_line_that_names_the_table(root: SkillRoot) -> None:
    # What says which columns the index's file has, in the middle of it.
    for file in root.root.files("lance/nodes.lance/_indices", "page_lookup.lance"):
        whole = bytearray(path(root, file).read_bytes())
        whole[640] ^= 1
        path(root, file).write_bytes(whole)
    began = time.monotonic()
    with pytest.raises(StorageError) as told:
        context(root)
    assert time.monotonic() - began < 8
    assert re.fullmatch(
        r"\S+ cannot be read: `skillery doctor --root \S+` repairs it \(table nodes is damaged\)",
        str(told.value),
    )


def test_a_tag_of_a_publication_that_was_cut_short_is_taken_off(root: SkillRoot) -> None:
    tag(root.root, NODES, "v-killed", root.served().nodes or 0)
    found = only(examine(root.root))
    assert (found.where, found.mended) == ("lance/nodes.lance", True)
    assert examine(root.root) == []


def test_a_version_whose_encoder_is_gone_is_kept_for_the_run_that_exports_it_anew(root: SkillRoot) -> None:
    last = root.served()
    export = path(root, root.model)
    target = export.readlink()
    export.unlink()
    found = only(examine(root.root))
    export.symlink_to(target)
    assert (found.where, found.mended) == (root.model, True)
    assert root.served() == last
    assert "in September" in context(root)


def test_a_text_that_the_disk_has_changed_is_found_by_its_hash(root: SkillRoot) -> None:
    first, second = published_versions(root.root)[::-1]
    for file in path(root, "lance/skills.lance/data").glob("*.lance"):
        file.write_bytes(file.read_bytes().replace(b"September", b"Septembex"))
    found = only(examine(root.root))
    assert "the text of local/market/bees is not what its hash says" in found.found
    assert (root.served(), root.served() != second) == (first, True)


@pytest.mark.parametrize("content", [None, "{", '{"version": "v-1"}'])
def test_a_pointer_that_is_lost_or_damaged_is_put_back(root: SkillRoot, content: str | None) -> None:
    last = root.served()
    path(root, SERVED).unlink() if content is None else path(root, SERVED).write_text(content)
    found = only(examine(root.root))
    assert (found.where, found.mended) == (SERVED, True)
    assert root.served() == last


def test_a_version_whose_manifest_is_damaged_is_let_go_of_and_the_one_before_served(root: SkillRoot) -> None:
    first = published_versions(root.root)[1]
    manifests = path(root, "lance/nodes.lance/_versions").glob("*.manifest")
    min(manifests).write_bytes(b"no manifest")  # LanceDB names them so that the newest comes first
    findings = examine(root.root)
    assert [found.mended for found in findings] == [True, True]
    assert "table nodes" in findings[0].found
    assert root.served() == first
    root.publish()
    assert "in September" in context(root)
    assert examine(root.root) == []


def test_a_damaged_manifest_that_no_version_served_needs_is_removed(root: SkillRoot) -> None:
    last, first = published_versions(root.root)
    manifests = sorted(path(root, "lance/skills.lance/_versions").glob("*.manifest"))
    manifests[-1].write_bytes(b"no manifest")  # the oldest: of a table with no rows yet
    found = only(examine(root.root))
    assert (found.where, found.done) == (str(manifests[-1].relative_to(root.root.folder)), "removed")
    assert published_versions(root.root) == [last, first]
    assert root.served() == last


def test_where_no_version_can_be_read_the_next_run_builds_the_index_anew(root: SkillRoot) -> None:
    for file in path(root, "lance/nodes.lance/data").glob("*.lance"):
        file.write_bytes(b"")
    found = only(examine(root.root))
    assert "table nodes" in found.found
    assert (found.where, found.mended) == (SERVED, True)
    assert not root.root.exists("lance")
    root.publish()
    assert "in September" in context(root)
    assert examine(root.root) == []


def test_a_damaged_record_of_a_version_is_removed_and_what_is_served_stays(root: SkillRoot) -> None:
    last = root.served()
    records = root.root.files("state/published", ".json")
    path(root, records[0]).write_text("{")
    found, *tags = examine(root.root)
    assert {tag.where for tag in tags} == {"lance/skills.lance", "lance/nodes.lance"}
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


def test_what_a_newer_program_wrote_is_refused_and_left_as_it_is(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, files = root.served(), root.root.files("lance")
    monkeypatch.setattr(tables, "SCHEMA_VERSION", SCHEMA_VERSION - 1)
    with pytest.raises(SchemaMismatch, match="upgrade"):
        examine(root.root)
    assert (root.served(), root.root.files("lance")) == (served, files)


def test_a_version_that_does_not_open_for_a_moment_is_left_as_it_is(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, failed = root.served(), list[int]()
    opening = tables.open_vendor_table

    def failing_once(place: Root, name: str, version: int) -> lancedb.table.Table:
        if name == SKILLS_TABLE and version == served.skills and not failed:
            failed.append(version)
            msg = "table skills cannot be opened (the bucket timed out)"
            raise StorageError(msg)
        return opening(place, name, version)

    monkeypatch.setattr(tables, "open_vendor_table", failing_once)
    assert examine(root.root) == []
    assert failed
    assert root.served() == served


def test_nodes_of_another_text_than_the_one_served_are_found(root: SkillRoot) -> None:
    last, first = published_versions(root.root)
    write_served(root.root, replace(last, nodes=first.nodes))
    found = only(examine(root.root))
    assert "is not what stands in the text of its skill" in found.found
    assert found.done == f"{first.version} is served again"


def test_states_of_which_a_byte_is_missing_are_found(root: SkillRoot) -> None:
    last, first = published_versions(root.root)
    table = connect(root.root).open_table(NODES)
    table.update(where=f"doc_id = '{BEES}'", values={"states": b"x" * 127})
    write_served(root.root, replace(last, nodes=table.version))
    found = only(examine(root.root))
    assert "127 bytes are no whole number of states" in found.found
    assert found.done == f"{first.version} is served again"


def test_what_a_run_that_died_wrote_to_a_table_does_no_harm(root: SkillRoot) -> None:
    model = {k: v for k, v in root.served().model.items() if k != "path"}
    writer = TableWriter(root.root, NODES, schema_of(NODES, model), root.served().nodes)
    writer.delete([BEES])
    assert examine(root.root) == []
    assert "in September" in context(root)
