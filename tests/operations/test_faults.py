"""What goes wrong at night: what is served answers as before, the next night completes, nothing is lost."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from storage.errors import SkilleryError
from storage.lance.served import published_versions, require_served
from storage.root import Root
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.publish import roll_back
from tests.support.roots.faults import EDITIONS, Place, answers, contents, require_mended
from tests.support.roots.night_process import LOCKED


def test_a_night_that_loses_its_disk_space_leaves_what_is_served_and_the_next_one_completes(
    place: Place, expected: dict[str, Any], small_disk: Path
) -> None:
    root = Root(shutil.copytree(place.root.folder, small_disk / "root", symlinks=True))
    full = place._replace(root=root)
    before = answers(root)
    for left in (0, 60_000, 400_000):
        filler = small_disk / "filler"
        free = shutil.disk_usage(small_disk).free
        filler.write_bytes(b"x" * max(0, free - left))
        with pytest.raises((SkilleryError, OSError, RuntimeError, ValueError)):
            full.night()
        assert answers(root) == before
        filler.unlink()
    require_mended(full, expected)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk of its own cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_of_two_nights_at_once_one_waits_its_turn_out(place: Place, expected: dict[str, Any]) -> None:
    both = [subprocess.Popen(place.command(), stdout=subprocess.DEVNULL) for _ in range(2)]
    assert sorted(process.wait() for process in both) in ([0, LOCKED], [0, 0])
    assert contents(place.root) == expected
    assert examine(place.root) == []


def test_a_clock_set_back_neither_hides_changes_nor_turns_versions_round(
    place: Place, expected: dict[str, Any]
) -> None:
    ahead, behind = datetime.now(UTC) + timedelta(days=400), datetime.now(UTC) - timedelta(days=400)
    place.night("ahead", ahead)
    place.write(EDITIONS[0])
    for day in range(2):
        place.write("third" if day % 2 else "fourth")
        place.night(f"back-{day}", behind + timedelta(days=day))
    assert contents(place.root)["documents"] != expected["documents"]
    place.write(EDITIONS[1])
    place.night("last", behind + timedelta(days=6))
    assert contents(place.root) == expected
    versions = [version.version for version in published_versions(place.root)]
    assert versions[:3] == ["v-last", "v-back-1", "v-back-0"]
    assert roll_back(place.root)[1].version == "v-back-1"
    assert examine(place.root) == []


def spoiled(root: Root, file: str) -> None:
    path = root.folder / file
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


PARQUET = ["state/seen", "documents", "nodes"]
MORE_PARQUET = [
    *("state/refined", "state/parsed", "edges"),
    *("vectors", "states", "state/signatures", "state/near"),
]


def slow(*values: str) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.mark.parametrize("folder", [*PARQUET, *slow(*MORE_PARQUET)])
def test_a_parquet_file_that_goes_bad_is_made_anew(
    place: Place, expected: dict[str, Any], folder: str
) -> None:
    before, files = answers(place.root), place.root.files(folder, ".parquet")
    if not files:
        pytest.skip(f"this root has nothing in {folder}")
    spoiled(place.root, files[0])
    with contextlib.suppress(SkilleryError):
        place.night()
    if require_served(place.root).run_id == "first":
        assert answers(place.root) == before
    require_mended(place, expected)


@pytest.mark.slow
def test_a_record_of_what_was_dropped_that_goes_bad_is_told_and_left_and_nights_go_on(
    place: Place, expected: dict[str, Any]
) -> None:
    file = place.root.files("dropped", ".parquet")[0]
    spoiled(place.root, file)
    damaged = place.root.read(file)

    place.night()

    (found,) = examine(place.root)
    assert (found.where, found.mended) == (file, False)
    assert place.root.read(file) == damaged
    place.root.delete(file)
    require_mended(place, expected)


INDEX = ["routing/*/vectors.npy", "lance/skills.lance/data/*"]
MORE_INDEX = [
    *("routing/*/rows.npy", "lance/nodes.lance/data/*", "lance/nodes.lance/_versions/*"),
    *("lance/skills.lance/_indices/*/*", "lance/nodes.lance/_indices/*/*"),
]


@pytest.mark.parametrize("pattern", [*INDEX, *slow(*MORE_INDEX)])
@pytest.mark.parametrize("injury", ["emptied", *slow("changed")])
def test_an_index_file_that_goes_bad_is_found_and_made_anew(
    place: Place, expected: dict[str, Any], pattern: str, injury: str
) -> None:
    before = answers(place.root)
    for path in sorted(place.root.folder.glob(pattern)):
        spoiled(place.root, str(path.relative_to(place.root.folder))) if injury == "changed" else (
            path.write_bytes(b"")
        )
    if pattern.startswith("routing") and injury == "emptied":
        assert answers(place.root) == before
    require_mended(place, expected)
    assert answers(place.root)[0] != before[0]
