"""Makes a git repository of a folder's files, the same one for the same files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tasks.crawl.git_client import open_git, run_git

_SKIPPED = {".git", "__pycache__"}
_WHO = b"Skillery <skillery@localhost> 946684800 +0000"


def make_repository(folder: Path, into: Path) -> str:
    """Make a bare repository whose one commit holds the files of a folder, bytes unchanged.

    The commit id depends on nothing but paths and bytes; a repository that is already there gets the commit
    as its branch `main`. Links stay links; modes, `.git` and `__pycache__` are left out.

    Returns:
        The spec `git+file://...` that reads it.

    Raises:
        SourceError: git is not installed.
    """
    repository = open_git(into)
    with tempfile.TemporaryFile() as stream:
        _write_stream(folder, stream)
        stream.seek(0)
        run_git(repository, "fast-import", "--quiet", "--force", source=str(folder), istream=stream)
    return f"git+{into.resolve().as_uri()}"


def _write_stream(folder: Path, stream: BinaryIO) -> None:
    """Write what `git fast-import` reads: one commit that begins with nothing."""
    message = b"Sample"
    stream.write(b"commit refs/heads/main\nauthor %b\ncommitter %b\n" % (_WHO, _WHO))
    stream.write(b"data %d\n%b\n" % (len(message), message))
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
