"""The sample marketplace that comes with the package, read as a git repository made from its files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.git.client import open_git, run_git
from tasks.crawl.git.source import GitSource
from tasks.crawl.source.protocol import SAMPLE, WholeSource

FOLDER = Path(__file__).parents[1] / "marketplace"
_SKIPPED = {".git", "__pycache__"}
_WHO = b"Skillery <skillery@localhost> 946684800 +0000"  # a fixed time, so that the commit id is fixed


def make_repository(folder: Path, into: Path) -> str:
    """Make a bare repository whose one commit holds the files of a folder; return its spec `git+file://...`.

    The commit id depends only on paths and bytes; a repository that is already there gets the commit as its
    branch `main`. Links stay links; file modes, `.git` and `__pycache__` are left out.
    """
    repository = open_git(into)
    with tempfile.TemporaryFile() as stream:
        _write_stream(folder, stream)
        stream.seek(0)
        run_git(repository, "fast-import", "--quiet", "--force", source=str(folder), istream=stream)
    return f"git+{into.resolve().as_uri()}"


def _write_stream(folder: Path, stream: BinaryIO) -> None:
    """Write the input of `git fast-import`: one commit without a parent."""
    stream.write(b"commit refs/heads/main\nauthor %b\ncommitter %b\ndata 6\nSample\n" % (_WHO, _WHO))
    for path in sorted(_files(folder), key=lambda p: p.relative_to(folder).as_posix()):
        link = path.is_symlink()
        content = os.fsencode(os.readlink(path)) if link else path.read_bytes()
        name = os.fsencode(path.relative_to(folder).as_posix())
        for plain, escaped in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n")):
            name = name.replace(plain, escaped)
        stream.write(b'M %b inline "%b"\n' % (b"120000" if link else b"100644", name))
        stream.write(b"data %d\n%b\n" % (len(content), content))


def _files(folder: Path) -> Iterator[Path]:
    for child in folder.iterdir():
        if child.name in _SKIPPED:
            continue
        if child.is_dir() and not child.is_symlink():
            yield from _files(child)
        elif child.is_symlink() or child.is_file():
            yield child


class SampleSource(WholeSource):
    """Reads the sample's repository, made below a root that its rows do not name, as a `GitSource`."""

    spec = SAMPLE

    def __init__(self, root: Root, **options: Any) -> None:  # noqa: ANN401 (GitSource's own)
        self._place, self._options = root.folder / "state" / "sample" / "marketplace", options

    def _repository(self) -> GitSource:
        return GitSource(make_repository(FOLDER, self._place).removeprefix("git+"), **self._options)

    def version(self) -> str | None:
        """Return the commit of the sample, which depends only on its paths and bytes."""
        return self._repository().version()

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield the sample's skills and the dropped entries."""
        for item in self._repository().read():
            row = replace(item, source=SAMPLE)
            yield row if isinstance(row, Dropped) else replace(row, url=None)
