"""The manifest of a partitioned table: which files it has, and each one's rows and digest as last written."""

from __future__ import annotations

import hashlib

from storage.errors import StorageError
from storage.root import Root

_FOLDER = "state/manifests"


class Manifest:
    """One small file for each file of a table: partitions are written side by side, by several processes.

    An entry is written after its file. If a run is killed in between, the entry describes the file before.

    Args:
        root: Where the table lies.
        folder: The table's folder below the root.
    """

    def __init__(self, root: Root, folder: str) -> None:
        self._root, self._folder = root, folder

    def note(self, file: str, rows: int, data: bytes) -> None:
        """Record what was written: `file` (relative to the root), its number of rows, and its bytes."""
        entry = {"rows": rows, "sha256": hashlib.sha256(data).hexdigest()}
        self._root.write_json(_entry(file), entry)

    def missing(self) -> list[str]:
        """Return the files that were written and are not there, sorted, relative to the root."""
        listed = self._root.files(f"{_FOLDER}/{self._folder}", ".json")
        files = {entry.removeprefix(f"{_FOLDER}/").removesuffix(".json") for entry in listed}
        return sorted(files - set(self._root.files(self._folder))) if files else []

    def is_missing(self, file: str) -> bool:
        """Tell whether a file was written and is not there."""
        return not self._root.exists(file) and self._root.exists(_entry(file))

    def adopt(self, file: str, rows: int) -> str | None:
        """Compare a readable file with its entry and make the entry describe it; return what differed.

        A file without an entry, of a root made by an earlier version, gets one; this is no difference.
        """
        data = self._root.read(file)
        found = {"rows": rows, "sha256": hashlib.sha256(data).hexdigest()}
        try:
            entry = self._root.read_json(_entry(file))
        except (StorageError, UnicodeDecodeError):
            entry = None
        if entry == found:
            return None
        self.note(file, rows, data)
        if entry is None:
            return None
        return f"{self._root.at(file)} is not the file last written: {rows} rows, not {entry.get('rows')}"


def renew_entry(root: Root, file: str, rows: int, data: bytes) -> None:
    """Record a file that was rewritten in place, if its table has a manifest."""
    if root.exists(_entry(file)):
        Manifest(root, "").note(file, rows, data)


def missing_files(root: Root) -> list[str]:
    """Return the files that a manifest lists and that are not there, of every table, backfills included."""
    below = [file for file in root.files("backfill", ".json") if f"/{_FOLDER}/" in file]
    entries = [*root.files(_FOLDER, ".json"), *below]
    files = [entry.replace(f"{_FOLDER}/", "", 1).removesuffix(".json") for entry in entries]
    there = root.each(root.exists, files)
    return [file for file, is_there in zip(files, there, strict=True) if not is_there]


def forget_entry(root: Root, file: str) -> None:
    """Remove the entry of a file; call it before the file is removed, or the file counts as lost."""
    root.delete(_entry(file))


def _entry(file: str) -> str:
    """Return the path of a file's entry; the tables of a backfill have theirs below its folder."""
    parts = file.split("/")
    base = parts[:2] if parts[0] == "backfill" else []
    return "/".join([*base, _FOLDER, *parts[len(base) :]]) + ".json"
