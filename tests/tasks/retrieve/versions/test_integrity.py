from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.lance.served import require_served
from storage.lance.tables import NODES, SKILLS
from storage.root import Root
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.integrity import changed_file, seal_tables
from tests.support.roots.hand_written import SKILLS as TEXTS
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

Make = Callable[[dict[str, str]], SkillRoot]


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    made = skill_root(TEXTS)
    made.publish()
    return made


def draws() -> random.Random:
    return random.Random(5)  # noqa: S311 (the same bits in every run)


def flip(root: Root, file: str, draw: random.Random) -> None:
    path = Path(root.at(file))
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def served_rows(root: Root) -> list[object]:
    """Return every served row, vectors included; what cannot be read is served as nothing."""
    served, db = require_served(root), connect(root)
    try:
        tables = [
            open_at(db, name, at) for name, at in ((SKILLS, served.skills), (NODES, served.nodes)) if at
        ]
        return [table.search().to_arrow().to_pylist() for table in tables]
    except Exception:
        return []


def test_no_flipped_bit_in_the_tables_changes_what_is_served_unseen(root: SkillRoot, tmp_path: Path) -> None:
    draw, before, changed = draws(), served_rows(root.root), 0
    files = [*root.root.files("lance/skills.lance/data"), *root.root.files("lance/nodes.lance/data")]
    for _ in range(40):
        copy = Root(shutil.copytree(root.root.folder, tmp_path / "copy", symlinks=True))
        flip(copy, draw.choice(files), draw)
        differs = served_rows(copy) != before
        changed += differs
        seen = changed_file(copy, require_served(copy)) is not None
        assert seen or not differs
        shutil.rmtree(copy.folder)
    assert changed > 5  # or this test would show nothing


def test_a_flipped_bit_of_an_index_or_a_manifest_is_found_and_made_good(root: SkillRoot) -> None:
    for folder in ("_indices", "_versions"):
        [*_, file] = root.root.files(f"lance/nodes.lance/{folder}")[:1]
        flip(root.root, file, draws())
        assert any(found.mended for found in examine(root.root)), folder
        root.publish()
        assert examine(root.root) == []


def test_only_files_of_the_version_asked_for_are_looked_at(root: SkillRoot) -> None:
    first, old = require_served(root.root), set(root.root.files("lance/nodes.lance/data"))
    root.write("bees", TEXTS["bees"].replace("in October", "in September"))
    root.publish()
    second = require_served(root.root)
    new = min(set(root.root.files("lance/nodes.lance/data")) - old)
    flip(root.root, new, draws())
    assert changed_file(root.root, first) is None
    assert changed_file(root.root, second) == new


def test_files_of_an_earlier_program_are_taken_as_they_are_and_gone_ones_forgotten(root: SkillRoot) -> None:
    root.root.delete("state/file-digests.json")
    seal_tables(root.root)
    noted = root.root.read_json("state/file-digests.json") or {}
    assert {file.split("/")[2] for file in noted} >= {"data", "_versions", "_indices"}
    assert changed_file(root.root, require_served(root.root)) is None
    for file in noted:
        root.root.delete(file)
    seal_tables(root.root)
    assert root.root.read_json("state/file-digests.json") == {}


@pytest.mark.parametrize("text", ['{"flour": [1, 2]}', "[]", "{", ""])
def test_a_record_of_digests_that_is_none_is_removed_and_made_again(root: SkillRoot, text: str) -> None:
    record = Path(root.root.at("state/file-digests.json"))
    record.write_text(text)
    found = examine(root.root)
    assert [defect.where for defect in found] == ["state/file-digests.json"]
    assert all(defect.mended for defect in found)
    assert examine(root.root) == []
