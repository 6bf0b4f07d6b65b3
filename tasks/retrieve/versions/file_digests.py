"""Digests of the tables' files: Lance checks no checksum when it reads, so a flipped bit would be served."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath

from storage.errors import StorageError
from storage.lance import TABLES
from storage.root import Root
from storage.served import Served

FILE = "state/file-digests.json"
_LAST = 2**64 - 1
# What a version is read from; each is written once and never changed. Transactions are read by writers alone.
_KEPT = ("data", "_indices", "_deletions", "_versions")
_PIECE = 1 << 20


def note_digests(root: Root, new: Served | None = None) -> None:
    """Record the SHA-256 of files of the tables that have none yet, and drop entries of files that are gone.

    The manifests of a version that is `new` are recorded again: one of a table that was deleted may have had
    their names. Of a bucket nothing is recorded: its service checks what it holds.
    """
    if root.uri != str(root.folder):
        return
    known = known_digests(root)
    for name, at in new.tables().items() if new else ():
        for file in _files(root, name, "_versions"):
            if number_of(file) == at:
                known.pop(file, None)
    files = {file for name in TABLES for kind in _KEPT for file in _files(root, name, kind)}
    now = {file: known.get(file) or _digest(root, file) for file in sorted(files)}
    if now != known_digests(root):
        root.write_json(FILE, now)


def changed_file(root: Root, version: Served) -> str | None:
    """Return a file that a version is read from and that is not as it was written; None if there is none.

    Raises:
        StorageError: A file or the record of digests cannot be read.
    """
    known = known_digests(root)
    for name, at in version.tables().items():
        for file in _read_by(root, name, at):
            if file in known and _digest(root, file) != known[file]:
                return file
    return None


def _read_by(root: Root, name: str, at: int) -> Iterator[str]:
    """Yield the files that a version of a table is read from: its manifest names them."""
    for file in _files(root, name, "_versions"):
        if number_of(file) == at:
            manifest = root.read(file)
            yield file
            break
    else:
        return  # whoever opens the table says so
    for file in (f for kind in _KEPT[:-1] for f in _files(root, name, kind)):
        path = PurePosixPath(file)
        if "/_indices/" in file:
            named = uuid.UUID(path.parent.name).bytes in manifest
        else:  # names of deletions are put together from numbers: all are looked at
            named = "/_deletions/" in file or path.name.encode() in manifest
        if named:
            yield file


def number_of(file: str) -> int | None:
    """Return the version of a manifest, whose name Lance counts down so that the newest sorts first."""
    stem = PurePosixPath(file).stem
    number = int(stem) if stem.isdecimal() else None
    return _LAST - number if number is not None and number > _LAST // 2 else number


def _files(root: Root, name: str, kind: str) -> list[str]:
    suffix = ".manifest" if kind == "_versions" else ""  # a hint beside them is rewritten
    return root.files(f"lance/{name}.lance/{kind}", suffix)


def known_digests(root: Root) -> dict[str, str]:
    """Return the digests recorded, by file; `StorageError` if the record has another shape."""
    found = root.read_json(FILE) or {}
    if not all(isinstance(digest, str) for digest in found.values()):
        msg = f"{root.at(FILE)} is damaged: `skillery doctor --root {root.uri}` removes it"
        raise StorageError(msg)
    return found


def _digest(root: Root, file: str) -> str:
    hashed = hashlib.sha256()
    with root.open(file) as data:
        while piece := data.read(_PIECE):
            hashed.update(piece)
    return hashed.hexdigest()
