"""The root: a folder or an S3 prefix, below which everything is read and written, through here alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from storage.errors import Missing, StorageError, WrongInput
from storage.folder import Folder

if TYPE_CHECKING:  # its import takes a tenth of a query
    import pyarrow as pa

    from storage.s3 import Bucket

T = TypeVar("T")
R = TypeVar("R")
_S3 = "s3://"


class Root:
    """A folder or an S3 prefix; paths below it are relative, with forward slashes.

    `uri` names it, `Root(uri)` is it again. `folder` is a folder of this machine: the root itself, or where
    copies of a bucket's files lie, and what no other machine asks for.

    `spec` is a folder's path, or `s3://bucket[/prefix]` (else `WrongInput`); the folder need not be there
    yet, the bucket must. A server is `remembering`: it goes on with what it knows while a bucket does not
    answer.

    Methods raise `StorageError` where a file is missing (`Missing`) or cannot be read or written,
    `Unreachable` where the bucket does not answer.
    """

    def __init__(self, spec: str | Path, *, remembering: bool = False) -> None:
        self.place = _place(spec, remembering=remembering)
        self.folder, self.uri = self.place.folder, self.place.uri

    def at(self, relative: str) -> str:
        """Return the address of `relative`, for messages and for libraries that open both kinds (LanceDB)."""
        return f"{self.uri}/{relative}"

    def exists(self, relative: str) -> bool:
        """Tell whether a file or folder of that name is there."""
        return self.place.exists(relative)

    def read(self, relative: str) -> bytes:
        """Return a file's bytes."""
        return self.place.read(relative)

    def sha256(self, relative: str) -> str:
        """Return the SHA-256 of a file, in hexadecimal."""
        return self.place.sha256(relative)

    def open(self, relative: str) -> pa.NativeFile:
        """Return a file to read parts of; what is put in its place meanwhile is not seen."""
        return self.place.open(relative)

    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place in one step: readers see the old bytes or the new ones, never a part.

        What was there stays where it cannot be written; `Locked` is raised where this process has lost the
        root's lock to another.
        """
        self.place.write(relative, data)

    def delete(self, relative: str) -> None:
        """Remove a file or a folder with all below it; nothing happens where there is none."""
        self.place.delete(relative)

    def delete_unfinished(self) -> None:
        """Remove what killed writes left beside their files; only a root's one writer may."""
        for file in self.unfinished():
            self.delete(file)

    def unfinished(self) -> list[str]:
        """Return what killed writes left beside their files, and what a living one is writing, sorted."""
        return self.place.unfinished()

    def files(self, folder: str, suffix: str = "") -> list[str]:
        """Return the files below `folder` at any depth whose names end in `suffix`, sorted.

        What a write that was killed left behind is not among them.
        """
        return self.place.files(folder, suffix)

    def sizes(self, since: float = 0.0) -> dict[str, int]:
        """Return how many bytes of files written since a time (Unix) lie below each folder of the root."""
        return self.place.sizes(since)

    def fetch(self, relative: str) -> Path:
        """Return where a file or folder lies on this machine; a bucket's is copied first.

        A copy that is as in the bucket is not fetched again; copies of what is gone from the bucket are
        removed.
        """
        return self.place.fetch(relative)

    def send(self, relative: str) -> None:
        """Put into a bucket the files that lie below `folder` there; in a folder they are in place."""
        self.place.send(relative)

    def each(self, work: Callable[[T], R], items: Iterable[T], *, spread: bool = False) -> list[R]:
        """Return what `work` makes of each item, in order; side by side where each waits for a bucket.

        With `spread` a folder's many items are spread over up to four cores too: for work that computes
        outside of Python, as packing and unpacking Parquet does.
        """
        return self.place.each(work, items, spread=spread)

    def read_json(self, relative: str) -> dict[str, Any] | None:
        """Return a JSON file's object, or None where there is no such file; another value is damage."""
        try:
            value = json.loads(self.read(relative))
        except Missing:
            return None
        except ValueError as error:
            raise StorageError(f"{self.at(relative)} is not JSON ({error})") from error
        if not isinstance(value, dict):
            raise StorageError(f"{self.at(relative)} holds {type(value).__name__} instead of an object")
        return value

    def write_json(self, relative: str, value: dict[str, Any]) -> None:
        """Put a JSON object in place in one step; half of a surrogate pair becomes a question mark."""
        self.write(relative, json.dumps(value, ensure_ascii=False, indent=1).encode(errors="replace"))


def _place(spec: str | Path, *, remembering: bool) -> Folder | Bucket:
    if isinstance(spec, str) and spec.startswith(_S3):
        from storage.s3 import Bucket, RememberingBucket  # noqa: PLC0415 (its library comes with an extra)

        return RememberingBucket(spec) if remembering else Bucket(spec)
    # A Path has folded the slashes of an address into one.
    if (isinstance(spec, str) and "://" in spec) or str(spec).startswith("s3:/"):
        raise WrongInput(f"root {str(spec)!r} is no folder: give a folder's path, or s3://bucket/prefix")
    return Folder(spec)
