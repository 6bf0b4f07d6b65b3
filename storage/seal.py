"""Seals: what a file was when it was written (SHA-256, size, rows), so that a damaged one is known.

Notes of older versions hold fewer of these: what is not known is None.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import StorageError
from storage.folder import digest_once
from storage.root import Root

SEAL = "digests.json"  # of the files of a folder, beside them


def sha256_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of one file, whose path is relative to its root."""

    path: str
    sha256: str
    size: int | None = None
    rows: int | None = None

    @classmethod
    def of(cls, path: str, data: bytes, rows: int | None = None) -> Seal:
        """Return the seal of a file's bytes."""
        return cls(path, sha256_of(data), len(data), rows)

    @classmethod
    def told(cls, path: str, note: Mapping[str, Any]) -> Seal:
        """Return the seal that a note holds, as `note` returned it."""
        return cls(path, str(note.get("sha256")), note.get("size"), note.get("rows"))

    def note(self) -> dict[str, Any]:
        """Return what is kept of it; the name of the note says whose it is."""
        known = {"rows": self.rows, "sha256": self.sha256, "size": self.size}
        return {key: value for key, value in known.items() if value is not None}

    def fits(self, data: bytes) -> bool:
        """Tell whether these are the bytes that were written."""
        return sha256_of(data) == self.sha256

    def holds(self, root: Root) -> bool:
        """Tell whether the file is as it was written; raises `StorageError` where it cannot be read."""
        return root.sha256(self.path) == self.sha256


def seals_of(digests: Mapping[str, str], folder: str = "") -> list[Seal]:
    """Return the seals of files of a folder, whose digests stand under their names."""
    return [Seal(f"{folder}/{name}" if folder else name, digest) for name, digest in digests.items()]


def first_broken(root: Root, seals: Iterable[Seal]) -> str | None:
    """Return the path of a file that is not as it was written, if any; raise `StorageError` if one went."""
    return next((seal.path for seal in seals if not seal.holds(root)), None)


def seal_folder(folder: Path) -> None:
    """Write the digests of a folder's files into one beside them."""
    place = Root(folder)
    digests = {file.name: place.sha256(file.name) for file in sorted(folder.iterdir())}
    (folder / SEAL).write_text(json.dumps(digests, indent=1), "utf-8")


def folder_holds(folder: Path) -> bool:
    """Tell whether a folder's files are as `seal_folder` found them; a folder that it never saw is."""
    try:
        digests: dict[str, str] = Root(folder).read_json(SEAL) or {}
        return all(digest_once(folder / name) == digest for name, digest in digests.items())
    except (OSError, StorageError, UnicodeDecodeError):  # a file is gone, or the machine lost power
        return False
