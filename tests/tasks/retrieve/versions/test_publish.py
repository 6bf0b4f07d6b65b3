from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from storage.errors import NotPublished, StorageError, WrongInput
from storage.lance.served import published_versions, read_served, require_served
from storage.lance.tables import NODES, SKILLS
from storage.lance.tables import SKILLS as TABLE
from storage.root import Root
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.integrity import changed_file, seal_tables
from tasks.retrieve.versions.publish import roll_back
from tests.support.roots.hand_written import BEES, BIKE, BREAD, skill
from tests.support.roots.hand_written import SKILLS as TEXTS
from tests.support.roots.skill_root import Make, SkillRoot
from tests.support.roots.vendor import connect, open_at

KILN = skill("kiln", "Fires clay pots in a kiln", "# Kiln\n\nLet the pots dry for a week before firing.\n")


def names(root: SkillRoot) -> set[str]:
    return {str(r["name"]) for r in root.ask().search("what can be done at home", 10)["results"]}


@pytest.fixture
def two_nights(skill_root: Make) -> SkillRoot:
    """Bread and bees on the first night, the bike beside them on the second."""
    root = skill_root({"bread": BREAD, "bees": BEES})
    root.publish()
    root.write("bike", BIKE)
    root.publish()
    return root


def test_going_back_serves_what_was_served_before_and_forward_again_what_was_last(
    two_nights: SkillRoot,
) -> None:
    last = two_nights.served()
    was, now = roll_back(two_nights.root)
    assert was == last
    assert read_served(two_nights.root) == now
    assert now.published_at < was.published_at
    assert names(two_nights) == {"bread", "bees"}
    roll_back(two_nights.root, last.version)
    assert two_nights.served() == last
    assert names(two_nights) == {"bread", "bees", "bike"}


@pytest.mark.slow
def test_the_night_after_a_rollback_publishes_what_the_corpus_holds(two_nights: SkillRoot) -> None:
    roll_back(two_nights.root)
    two_nights.write("kiln", KILN)
    two_nights.publish()
    assert names(two_nights) == {"bread", "bees", "bike", "kiln"}
    assert len(published_versions(two_nights.root)) == 3


def test_going_back_twice_goes_two_versions_back_not_to_and_fro(two_nights: SkillRoot) -> None:
    two_nights.write("kiln", KILN)
    two_nights.publish()
    newest_first = published_versions(two_nights.root)
    for earlier in newest_first[1:]:
        assert roll_back(two_nights.root)[1] == earlier
    with pytest.raises(WrongInput, match="nothing to go back to"):
        roll_back(two_nights.root)


def test_a_version_that_is_not_kept_is_refused_with_those_that_are(two_nights: SkillRoot) -> None:
    kept = [v.version for v in published_versions(two_nights.root)]
    with pytest.raises(WrongInput, match=", ".join(kept)):
        roll_back(two_nights.root, "v-of-another-root")


def test_the_first_version_has_nothing_before_it(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    root.publish()
    with pytest.raises(WrongInput, match="nothing to go back to"):
        roll_back(root.root)


def test_without_a_publication_there_is_nothing_to_go_back_from(skill_root: Make) -> None:
    with pytest.raises(NotPublished):
        roll_back(skill_root({"bread": BREAD}).root)


def test_a_version_whose_table_is_gone_is_not_served(two_nights: SkillRoot) -> None:
    last = two_nights.served()
    connect(two_nights.root).drop_table(TABLE)
    with pytest.raises(StorageError, match=TABLE):
        roll_back(two_nights.root)
    assert two_nights.served() == last


def test_a_version_whose_encoder_is_gone_is_not_served(two_nights: SkillRoot) -> None:
    earlier = published_versions(two_nights.root)[1]
    moved = Path(two_nights.root.at(two_nights.model))
    shutil.move(moved, moved.with_name("elsewhere"))
    with pytest.raises(StorageError, match=f"{earlier.version} cannot be served: its encoder"):
        roll_back(two_nights.root)


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


@pytest.mark.slow
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


@pytest.mark.parametrize("text", ['{"flour": [1, 2]}', "{"])
def test_a_record_of_digests_that_is_none_is_removed_and_made_again(root: SkillRoot, text: str) -> None:
    record = Path(root.root.at("state/file-digests.json"))
    record.write_text(text)
    found = examine(root.root)
    assert [defect.where for defect in found] == ["state/file-digests.json"]
    assert all(defect.mended for defect in found)
    assert examine(root.root) == []
