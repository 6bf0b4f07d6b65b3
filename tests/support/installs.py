"""Skills to install, and a process that is killed while it does: `python -m tests.support.installs`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from unittest.mock import patch

import storage.folder
from tasks.retrieve.install import skills_folder
from tasks.retrieve.install.lock import Installed
from tasks.retrieve.install.skills_folder import SkillsFolder, digests_of, open_skills_folder

BREAD_ID = "local/market/bread"
OLD = {"SKILL.md": b"Bake.\n", "scripts/knead.sh": b"echo knead\n", "a.md": b"old\n", "gone.md": b"x\n"}
NEW = {"SKILL.md": b"Bake long.\n", "scripts/knead.sh": b"echo more\n", "a.md": b"old\n", "b/c.md": b"new\n"}
MINE = {"notes.md": b"Mine.\n"}  # what a person added
_EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.listdir", "os.scandir"}


def installed(contents: Mapping[str, bytes], doc_id: str = BREAD_ID) -> Installed:
    """Return what a lock says of a skill with these files."""
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    same = digests["SKILL.md"]
    return Installed(doc_id, "dir:market", None, None, same, same, same, "MIT", digests, [], [], [])


def put(contents: Mapping[str, bytes], skills: SkillsFolder) -> None:
    skills.put("bread", installed(contents), contents)


WORK: dict[str, Callable[[SkillsFolder], None]] = {
    "install": partial(put, NEW),
    "update": partial(put, NEW),
    "update by two renames": partial(put, NEW),
    "merge": lambda skills: skills.put("bread", installed(NEW), NEW | MINE, onto=digests_of(OLD | MINE)),
    "remove": lambda skills: skills.remove("bread"),
}


def _cannot(one: Path, other: Path) -> None:
    raise OSError(38, "Function not implemented", str(one))


def _work(kind: str, folder: Path, kill_at: int | None) -> int:
    """Do the work, and return how often it called for a file; it is killed at one of these calls."""
    calls = 0

    def count(event: str, _: object) -> None:
        nonlocal calls
        if event in _EVENTS:
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1

    exchange = _cannot if kind == "update by two renames" else storage.folder.exchange
    with patch.object(skills_folder, "exchange", exchange), open_skills_folder(folder) as skills:
        sys.addaudithook(count)
        WORK[kind](skills)
    return calls


def main() -> None:
    """Do work in each of some folders, in a fork each, killed at the call that the folder is given."""
    kind, moments = sys.argv[1], json.loads(sys.argv[2])
    for folder, kill_at in moments.items():
        child = os.fork()
        if child == 0:
            calls = _work(kind, Path(folder), kill_at)
            sys.stdout.write(f"{calls}\n")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
