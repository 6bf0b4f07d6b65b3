from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from storage.root import Root
from tests.support.roots.faults import EDITIONS, STARTS_AT, Place, contents
from tests.support.roots.skill_root import Export


@pytest.fixture(scope="session")
def first_night(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Place:
    """A root that serves the first edition; tests copy it."""
    folder = tmp_path_factory.mktemp("faults")
    place = Place(Root(folder / "root"), folder / "market", minilm_export.folder)
    (folder / "root/models").mkdir(parents=True)
    (folder / "root/models" / place.export.name).symlink_to(place.export)
    place.write(EDITIONS[0])
    place.night("first", STARTS_AT)
    return place


@pytest.fixture
def place(first_night: Place, tmp_path: Path) -> Place:
    """A copy of that root, with the second edition in its market."""
    copy = shutil.copytree(first_night.root.folder, tmp_path / "root", symlinks=True)
    made = first_night._replace(root=Root(copy))
    made.write(EDITIONS[1])
    return made


@pytest.fixture(scope="session")
def expected(first_night: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the second edition comes to where no night fails, by edition's last one."""
    folder = tmp_path_factory.mktemp("expected")
    root = Root(shutil.copytree(first_night.root.folder, folder / "root", symlinks=True))
    place = first_night._replace(root=root)
    place.write(EDITIONS[1])
    place.night("second")
    return contents(root)
