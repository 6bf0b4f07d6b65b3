from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.blobs import BlobStore, blob_file
from tasks.retrieve.versions.doctor import examine
from tests.support.roots.hand_written import BEES, BIKE
from tests.support.roots.skill_root import SkillRoot

RUN = b"echo run\n"
BLOB = blob_file(hashlib.sha256(RUN).hexdigest())
Make = Callable[[dict[str, str]], SkillRoot]


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    made = skill_root({"bees": BEES, "bike": BIKE})
    made.write_file("bees", "run.sh", RUN)
    made.publish()
    return made


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [tear, Path.unlink])
def test_a_lost_or_damaged_blob_is_made_again_by_the_next_run(
    root: SkillRoot, harm: Callable[[Path], None]
) -> None:
    harm(Path(root.root.at(BLOB)))
    (found,) = examine(root.root)
    assert (found.where, found.mended) == (BLOB, True)
    assert BlobStore(root.root).digests() == []
    root.crawl()
    assert root.root.read(BLOB) == RUN
    assert examine(root.root) == []
    assert root.parse()["documents"] == 0


def test_a_damaged_blob_that_nothing_names_goes(root: SkillRoot) -> None:
    (stray,) = BlobStore(root.root).put([b"left by a killed run"])
    tear(Path(root.root.at(blob_file(stray))))
    (found,) = examine(root.root)
    assert (found.where, found.mended) == (blob_file(stray), True)
    assert BlobStore(root.root).digests() == [hashlib.sha256(RUN).hexdigest()]


def test_whole_blobs_are_no_defect(root: SkillRoot) -> None:
    assert examine(root.root) == []
    root.write_file("bees", "run.sh", b"echo walk\n")
    root.publish()
    assert examine(root.root) == []
