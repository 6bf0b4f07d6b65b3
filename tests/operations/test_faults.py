"""What goes wrong at night: what is served answers as before, the next night completes, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import NothingReadable, SkilleryError
from storage.lance.served import published_versions, require_served
from storage.locks import writer_lock
from storage.root import Root
from tasks.crawl.source.base import CrawlContext, Source
from tasks.crawl.sources import open_source
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.publish import roll_back
from tests.support.command import skillery
from tests.support.crawl.crawling import grows, settings_of
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.roots.faults import EDITIONS, Place, answers, contents, index_of, require_mended
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.night_process import run_night
from tests.support.roots.skill_root import Export, SkillRoot


def slow(*values: object) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.mark.parametrize("left", [400_000, *slow(0)])
def test_a_night_that_loses_its_disk_space_leaves_what_is_served_and_the_next_one_completes(
    place: Place, expected: dict[str, Any], small_disk: Path, left: int
) -> None:
    root = Root(shutil.copytree(place.root.folder, small_disk / "root", symlinks=True))
    full = place._replace(root=root)
    before = answers(root)
    filler = small_disk / "filler"
    free = shutil.disk_usage(small_disk).free
    filler.write_bytes(b"x" * max(0, free - left))
    with pytest.raises((SkilleryError, OSError, RuntimeError, ValueError)):
        full.night()
    assert answers(root) == before
    filler.unlink()
    require_mended(full, expected)


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a file system in memory, for which a test needs the right to; of 24 MB, or as a test says."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={getattr(request, 'param', 24)}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk of its own cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
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


def test_a_parquet_file_that_goes_bad_is_made_anew(place: Place, expected: dict[str, Any]) -> None:
    before = answers(place.root)
    spoiled(place.root, place.root.files("documents", ".parquet")[0])
    with contextlib.suppress(SkilleryError):
        place.night()
    if require_served(place.root).run_id == "first":
        assert answers(place.root) == before
    require_mended(place, expected)


def test_an_index_file_that_goes_bad_is_found_and_made_anew(place: Place, expected: dict[str, Any]) -> None:
    before = answers(place.root)
    for path in place.root.folder.glob("lance/skills.lance/data/*"):
        path.write_bytes(b"")
    require_mended(place, expected)
    assert answers(place.root)[0] != before[0]


NIGHT = datetime(2026, 6, 1, 2, tzinfo=UTC)


@pytest.fixture
def world() -> World:
    made = World()
    made.github.anonymous_limit = 1_000_000
    texts = {
        "rye": "Knead the rye dough for ten minutes.", "jam": "Boil the plums with half as much sugar.",
        "tea": "Pour boiling water over the leaves.", "soup": "Roast the bones before they simmer all night.",
    }  # fmt: skip
    for name, text in texts.items():
        made.repository(f"{name}/kitchen").commit({f"skills/{name}/SKILL.md": grows(name, text)})
    return made


def skillsmp(root: Root, market: Marketplace, now: datetime) -> Source:
    return open_source("skillsmp", CrawlContext(root, now, None, settings=settings_of(market.environment())))


@pytest.mark.slow
def test_without_a_network_what_is_served_answers_marked_stale_and_the_next_night_catches_up(
    place: Place, world: World, tmp_path: Path
) -> None:
    root = Root(tmp_path / "network")
    (root.folder / "models").mkdir(parents=True)
    (root.folder / "models" / place.export.name).symlink_to(place.export)
    with Marketplace(world) as market:
        run_night(root, skillsmp(root, market, NIGHT), place.export, "first", NIGHT)
        gone = skillsmp(root, market, NIGHT + timedelta(days=1))
    before = contents(root)
    world.repository("rye/kitchen").commit(
        {"skills/rye/SKILL.md": grows("rye", "Let it rest in the fridge.")}
    )
    with pytest.raises(NothingReadable):
        run_night(root, gone, place.export, "cut-off", NIGHT + timedelta(days=1))
    assert contents(root) == before
    found = index_of(root).search("a skill")["results"]
    assert found
    assert all(result["stale"] for result in found)
    assert examine(root) == []
    again = NIGHT + timedelta(days=10)
    with Marketplace(world) as market:
        assert run_night(root, skillsmp(root, market, again), place.export, "again", again)
    assert contents(root)["documents"] != before["documents"]
    assert not any(result["stale"] for result in index_of(root).search("a skill")["results"])


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
@pytest.mark.parametrize("small_disk", [400], indirect=True)
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


# Names that differ from root to root, or from file to file of one kind.
_VARIES = re.compile(
    r"part-\d+|run=[^/]*|date=[^/]*|[0-9a-f]{12,}[^/.]*|\d{6,}[^/.]*|v-[^/.]*|first(?=\.json)"
)
# Not the root's own: the exported encoder, and locks that hold nothing.
_LEFT_OUT = ("models/",)


def other_shape(path: Path) -> None:
    """Put a file there that can be read and holds something else."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"flour": [1, 2]}), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps({"flour": [1, 2]}))
    else:
        path.write_bytes(b"flour\n")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)


INJURIES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a bit flipped": flip,
    "another shape": other_shape,
}


def kinds_of(root: Root) -> dict[str, str]:
    """Return a file of each kind by its kind: the path without what varies."""
    files = (f for f in root.files("") if not f.startswith(_LEFT_OUT))
    return {_VARIES.sub("*", file): file for file in files}


def said(ask: Callable[[], object], before: object = None) -> str:
    """Return what came of asking: an error of ours, or whether the answer is the one of before."""
    try:
        answer = ask()
    except SkilleryError as error:
        return f"says: {str(error)[:90]}"
    return "as before" if before is None or answer == before else "ANSWERS OTHERWISE"


def tried(
    place: Place, file: str, injure: Callable[[Path], object], before: object, end: object
) -> list[str]:
    """Damage a file; return what search, the doctor and the next night say, and how it ends."""
    injure(Path(place.root.at(file)))
    searched = said(lambda: answers(place.root), before)
    found = examine(place.root)
    doctor = "; ".join(f"{'' if f.mended else 'LOST '}{f.done[:60]}" for f in found) or "nothing found"
    night = said(place.night)
    lost = any(not f.mended for f in found)
    ended = "named" if lost else "all back" if contents(place.root) == end else "NOT ALL BACK"
    again = [f for f in examine(place.root) if f.mended]
    return [searched, doctor, night, f"{ended}{'; FOUND AGAIN ' + again[0].found[:60] if again else ''}"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_damage_is_served_or_ends_in_a_traceback_and_all_of_it_comes_back_or_is_named(
    place: Place, expected: dict[str, Any], tmp_path: Path
) -> None:
    place.night()
    end, before, bad = contents(place.root), answers(place.root), list[str]()
    for kind, file in kinds_of(place.root).items():
        for injury, injure in INJURIES.items():
            root = Root(shutil.copytree(place.root.folder, tmp_path / "copy", symlinks=True))
            try:
                row = tried(place._replace(root=root), file, injure, before, end)
            except Exception as error:
                row = [f"RAISES {type(error).__name__}: {str(error)[:120]}"]
            line = f"| {kind} | {injury} | {' | '.join(row)} |"
            sys.stdout.write(f"{line}\n")
            if re.search(r"RAISES|OTHERWISE|NOT ALL|AGAIN", line):
                bad.append(line)
            shutil.rmtree(root.folder)
    assert bad == []
