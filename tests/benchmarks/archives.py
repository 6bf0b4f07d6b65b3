"""What reading 600 repositories' archives takes: seconds, and the process's peak memory.

Run by hand: `python tests/benchmarks/archives.py [ARCHIVES] [THREADS]`. Of the archives most are small, every
hundredth has 2,000 files, one is of nearly 50 MB, one has as many entries as are allowed, and one is a bomb
whose SKILL.md unpacks to nearly a gigabyte. They are read in a process of its own, so that making them is
not counted.
"""

# ruff: noqa: S311, T201 - numbers that only have to differ; what a benchmark says, it prints

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from storage.schemas import RawDocument
from tasks.crawl.github.archive import Archive, ArchiveLimits
from tests.support.crawl.zip_files import read_archive

_WORDS = [
    "prune",
    "water",
    "sow",
    "graft",
    "mulch",
    "harvest",
    "trellis",
    "seedling",
    "compost",
    "orchard",
    "frost",
    "loam",
]
_ROOT = "repository-0f"
_LIMITS = ArchiveLimits()


def make(folder: Path, count: int) -> None:
    """Write `count` archives into a folder."""
    for number in range(count):
        drawn = random.Random(number)
        with ZipFile(folder / f"{number:04}.zip", "w", ZIP_DEFLATED) as archive:
            archive.comment = b"0f" * 20
            for name, content in _members(number, drawn):
                archive.writestr(f"{_ROOT}/{name}", content)


def _members(number: int, drawn: random.Random) -> Iterator[tuple[str, bytes]]:
    yield "LICENSE", _prose(drawn, 1_100)
    if number == 1:
        yield from ((f"footage/{n}.bin", drawn.randbytes(1_000_000)) for n in range(48))
    if number == 2:
        yield from ((f"crumbs/{n}.txt", b"x") for n in range(_LIMITS.files - 100))
    if number == 3:
        yield "skills/bomb/SKILL.md", bytes(_LIMITS.unpacked_bytes - 2_000_000)
    for skill in range(drawn.randint(1, 8)):
        yield f"skills/{skill}/SKILL.md", _prose(drawn, 6_000)
        for file in range(250 if number % 100 == 0 else drawn.randint(0, 6)):
            yield f"skills/{skill}/references/{file}.md", _prose(drawn, 2_000)


def _prose(drawn: random.Random, size: int) -> bytes:
    return " ".join(drawn.choices(_WORDS, k=size // 7)).encode()


def _documents(path: Path) -> int:
    with Archive(path) as archive:
        rows = read_archive(archive, f"ada/{path.stem}", "benchmark")
        return sum(isinstance(row, RawDocument) for row in rows)


def read(folder: Path, threads: int) -> None:
    """Read every archive of a folder and print what it took."""
    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        documents = sum(pool.map(_documents, sorted(folder.glob("*.zip"))))
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    print(f"{documents:,} skills in {seconds:.1f} s with {threads} threads, {peak:.0f} MB at most")


def main(count: int = 600, threads: int = 4) -> None:
    """Make archives, and read them with one thread and with several."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), count)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(f"{count} archives of {size / 1e6:.0f} MB")
        for number in (1, threads):
            subprocess.run([sys.executable, __file__, "--read", folder, str(number)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:3]))
