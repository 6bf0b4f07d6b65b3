"""Every kind of file below a root, damaged in every way: `pytest -m slow -s` prints what was said of each."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import SkilleryError
from storage.root import Root
from tasks.retrieve.versions.doctor import examine
from tests.support.roots.faults import Place, answers, contents

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
