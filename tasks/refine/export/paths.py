"""Paths of an export that any file system takes, made of ids and of the paths of bundled files."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from tasks.crawl.source.identity import path_key

# Characters that some file system refuses, and names that mean something to one or to a reader of skills.
_UNSAFE = re.compile(r"[^\w.@+-]|\.(?=\.)")
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|com\d|lpt\d|skill\.md|license|provenance\.json)(?:\..*)?", re.IGNORECASE
)
_MAX_PART_BYTES, _MAX_NAME_BYTES = 80, 250  # of a part that is made; of one that is kept (systems: 255)
# Systems take paths of 4,096 bytes, the export's own folder and the files' names included.
_MAX_PATH_BYTES = 1_000
# Names of bundled files that stay as they are. `.git` means something to a program that is run nearby, and of
# a folder of skills with a plugin's manifest agents run its hooks and servers.
_PLAIN = re.compile(
    r"(?! |\.git$|\.[a-z]+-plugin$|\.{1,2}$)[\w .@+,&=#!$%;^'()\[\]{}-]{1,200}(?<![ .])", re.IGNORECASE
)
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def safe_path(doc_id: str) -> str:
    """Return a relative path, made of a document's id, that is safe on any file system.

    Each part keeps letters, digits and `.@+-_`. No part is hidden, reserved, longer than 80 bytes, or `..`.
    A path of more than 1,000 bytes is cut, and ends in 12 hexadecimal digits of the id's SHA-256.
    """
    whole = unicodedata.normalize("NFC", doc_id.replace("\\", "/"))
    parts = [_UNSAFE.sub("_", part.strip(". ")).strip(". ") for part in whole.split("/")]
    kept = [part.encode()[:_MAX_PART_BYTES].decode(errors="ignore").rstrip(". ") for part in parts]
    path = "/".join(f"_{part}" if _RESERVED.fullmatch(part) else part for part in kept if part) or "_"
    if len(path.encode()) <= _MAX_PATH_BYTES:
        return path
    cut = path.encode()[:_MAX_PATH_BYTES].decode(errors="ignore").rpartition("/")[0]
    return f"{cut}/{hashlib.sha256(doc_id.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def file_path(path: str) -> str:
    """Return the path of a bundled file; parts that some file system refuses are those of `safe_path`."""
    parts = (part if _is_plain(part) else safe_path(part) for part in path.split("/"))
    found = "/".join(parts)
    return found if len(found.encode()) <= _MAX_PATH_BYTES else safe_path(path)


def _is_plain(part: str) -> bool:
    plain = _PLAIN.fullmatch(part) and not _DEVICE.fullmatch(part)
    return bool(plain) and len(part.encode()) <= _MAX_NAME_BYTES


class FreePaths:
    """Gives files and folders below a folder paths of their own, whether or not letter case counts there.

    What lies in the folder keeps its path (None: nothing does), and so do those `taken`, relative to it.
    """

    def __init__(self, folder: Path | None, taken: Iterable[str] = ()) -> None:
        self._folder, self._files = folder, {path_key(path) for path in taken}
        self._folders, self._above = set[str](), set[str]()  # given as such; those that files lie in

    def of_file(self, path: str) -> str:
        """Return a free path for a file, with numbers after those of its parts that are not free."""
        free = _numbered(self._below(path), self._is_taken)
        self._files.add(path_key(free))
        return free

    def of_folder(self, path: str, own: Collection[str]) -> str:
        """Return a free path for a folder; one that is there is free if it lacks these names of its `own`."""

        def is_taken(tried: str) -> bool:
            used = any(self._lies(f"{tried}/{name}") for name in own)
            return used or path_key(tried) in self._folders or self._is_file(tried)

        free = _numbered(self._below(path), is_taken)
        self._folders.add(path_key(free))
        return free

    def _below(self, path: str) -> str:
        """Return a path whose folders may be used: no file has the path of one."""
        *folders, name = path.split("/")
        at = ""
        for folder in folders:
            at = _numbered(at + folder, self._is_file)
            self._above.add(path_key(at))
            at += "/"
        return at + name

    def _is_file(self, path: str) -> bool:
        there = self._folder is not None and (self._folder / path).is_file()
        return there or path_key(path) in self._files

    def _is_taken(self, path: str) -> bool:
        return self._is_file(path) or path_key(path) in self._above or self._lies(path)

    def _lies(self, path: str) -> bool:
        return self._folder is not None and (self._folder / path).exists()


def _numbered(path: str, is_taken: Callable[[str], bool]) -> str:
    tried, number = path, 1
    while is_taken(tried):
        number += 1
        tried = f"{path}~{number}"
    return tried
