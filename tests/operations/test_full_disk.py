"""A full disk: a run says so in one line, and what makes room or goes back can still work."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.locks import writer_lock
from tests.support.command import skillery
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, SkillRoot

_MEGABYTES = 400


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system in memory, for which a test needs the right to."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Write until nothing fits any more."""
    with (disk / "fill").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


@pytest.mark.slow
def test_on_a_full_disk_one_goes_back_forgets_and_looks_for_damage(
    small_disk: Path, minilm_export: Export, tmp_path: Path
) -> None:
    root = SkillRoot(tmp_path / "market", small_disk / "root", minilm_export.folder)
    for name, text in SKILLS.items():
        root.write(name, text)
    with writer_lock(root.root):  # as every night does
        root.publish()
    first = root.root.read_json("state/served.json")["version"]
    root.write("bees", SKILLS["bees"] + "\n- Wear a veil.\n")
    root.publish()
    place = ["--root", str(root.root.folder)]
    fill(small_disk)

    run: Callable[..., subprocess.CompletedProcess[str]] = skillery
    night = run("run", *place)
    back = run("rollback", *place, "--json")
    found = run("doctor", *place)
    gone = run("forget", "local/market/bees", "--yes", *place)

    said = [line for line in night.stderr.splitlines() if "| INFO" not in line]
    assert (night.returncode, len(said)) == (1, 1), night.stderr
    assert "No space left on device" in said[0]
    assert back.returncode == 0, back.stderr
    assert json.loads(back.stdout)["served"] == first
    assert found.returncode == 0, found.stderr
    assert gone.returncode == 0, gone.stderr
    assert "local/market/bees" not in run("search", "bees", *place).stdout
