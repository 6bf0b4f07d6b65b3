"""What keeping bundled files costs a crawl: its seconds with them and without, turn by turn.

Run by hand: `python -m tests.benchmarks.crawl_bundles FOLDER [--skills 1000] [--files 5] [--bytes 3000]
[--turns 5]`. FOLDER is a new one, for skills made up and the roots. Random hexadecimal digits pack worse than
most files do.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.git.source import GitSource, make_repository
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.source.base import Source
from tasks.crawl.source.bundle import DocumentLimits

_KEPT = {"with files": DocumentLimits(), "without": DocumentLimits(kept_files=0)}


def _write_skills(folder: Path, skills: int, files: int, size: int) -> None:
    chance = random.Random(0)  # noqa: S311 (no secret)
    for number in range(skills):
        skill = folder / f"skill-{number}"
        skill.mkdir(parents=True)
        text = "Weigh the flour, then let the dough rise.\n" * 100
        (skill / "SKILL.md").write_text(f"---\nname: s{number}\ndescription: Bakes.\n---\n{text}", "utf-8")
        for file in range(files):
            (skill / f"file-{file}.py").write_text(chance.randbytes(size // 2).hex(), "utf-8")


def _crawl(source: Source, root: Path) -> float:
    began = time.perf_counter()
    collect(source, Root(root), run_id="bench", now=datetime.now(UTC))
    seconds = time.perf_counter() - began
    shutil.rmtree(root)
    return seconds


def main() -> None:
    """Print the median seconds of each source, with files kept and without, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--skills", type=int, default=1000)
    parser.add_argument("--files", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    market = given.folder / "market"
    _write_skills(market, given.skills, given.files, given.bytes)
    address = make_repository(market, given.folder / "repository.git").removeprefix("git+")
    sources: dict[str, Callable[[DocumentLimits], Source]] = {
        "dir": lambda limits: DirectorySource(str(market), limits=limits),
        "git": lambda limits: GitSource(address, limits=limits),
    }
    for kind, make in sources.items():
        _crawl(make(DocumentLimits()), given.folder / "root")  # the first reading fills the system's caches
        seconds: dict[str, list[float]] = {name: [] for name in _KEPT}
        for _ in range(given.turns):
            for name, limits in _KEPT.items():
                seconds[name].append(_crawl(make(limits), given.folder / "root"))
        median = {name: statistics.median(found) for name, found in seconds.items()}
        ratio = median["with files"] / median["without"]
        told = ", ".join(f"{name} {value:.2f} s" for name, value in median.items())
        print(f"{kind}: {told}; {ratio:.2f} times")


if __name__ == "__main__":
    main()
