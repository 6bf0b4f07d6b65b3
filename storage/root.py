"""The root: one folder, below which everything is read and written, through here alone."""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.errors import StorageError, WrongInput

_UNFINISHED = ".tmp"


class Root:
    """A folder; paths below it are relative, with forward slashes.

    Args:
        spec: The folder's path; it need not be there yet.

    Raises:
        WrongInput: `spec` names a file, or no path at all (`s3://…`).
    """

    def __init__(self, spec: str | Path) -> None:
        # A Path has folded the slashes of an address into one.
        if (isinstance(spec, str) and "://" in spec) or str(spec).startswith("s3:/"):
            msg = f"root {str(spec)!r} is no folder: this version keeps its root in a folder"
            raise WrongInput(msg)
        self.folder = Path(spec).expanduser().absolute()
        if self.folder.exists() and not self.folder.is_dir():
            msg = f"root {str(spec)!r} is a file: name a folder"
            raise WrongInput(msg)
        self.uri = str(self.folder)

    def at(self, relative: str) -> str:
        """Return the address of `relative` for libraries that open it themselves (LanceDB, ONNX Runtime)."""
        return f"{self.uri}/{relative}"

    def exists(self, relative: str) -> bool:
        """Tell whether a file or folder of that name is there."""
        return (self.folder / relative).exists()

    def read(self, relative: str) -> bytes:
        """Return a file's bytes.

        Raises:
            StorageError: The file is not there, or cannot be read.
        """
        with self._reading(relative):
            return (self.folder / relative).read_bytes()

    def open(self, relative: str) -> pa.NativeFile:
        """Return a file to read parts of; what is put in its place meanwhile is not seen.

        Raises:
            StorageError: The file is not there, or cannot be read.
        """
        with self._reading(relative):
            return pa.OSFile(str(self.folder / relative))

    @contextlib.contextmanager
    def _reading(self, relative: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            msg = f"{self.at(relative)} is missing"
            raise StorageError(msg) from error
        except OSError as error:
            msg = f"{self.at(relative)} cannot be read ({error.strerror or error})"
            raise StorageError(msg) from error

    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place in one step: readers see the old bytes or the new ones, never a part.

        Raises:
            StorageError: It cannot be written; what was there stays.
        """
        path = self.folder / relative
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{_UNFINISHED}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(data)
            beside.replace(path)
        except OSError as error:
            msg = f"{self.at(relative)} cannot be written ({error.strerror})"
            raise StorageError(msg) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def delete(self, relative: str) -> None:
        """Remove a file or a folder with all below it; nothing happens where there is none."""
        path = self.folder / relative
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def delete_unfinished(self) -> None:
        """Remove what killed writes left beside their files; only a root's one writer may."""
        for file in self.unfinished():
            self.delete(file)

    def unfinished(self) -> list[str]:
        """Return what killed writes left beside their files, and what a living one is writing, sorted."""
        found = (path for path in self.folder.rglob(f"*{_UNFINISHED}") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def files(self, folder: str, suffix: str = "") -> list[str]:
        """Return the files below `folder` at any depth whose names end in `suffix`, sorted.

        What a write that was killed left behind is not among them.
        """
        found = (p for p in (self.folder / folder).rglob("*") if p.is_file())
        whole = (p for p in found if p.name.endswith(suffix) and p.suffix != _UNFINISHED)
        return sorted(p.relative_to(self.folder).as_posix() for p in whole)

    def read_json(self, relative: str) -> dict[str, Any] | None:
        """Return a JSON file's object, or None where there is no such file.

        Raises:
            StorageError: The file is not a JSON object.
        """
        if not self.exists(relative):
            return None
        try:
            value = json.loads(self.read(relative))
        except ValueError as error:
            msg = f"{self.at(relative)} is not JSON ({error})"
            raise StorageError(msg) from error
        if not isinstance(value, dict):
            msg = f"{self.at(relative)} holds {type(value).__name__} instead of an object"
            raise StorageError(msg)
        return value

    def write_json(self, relative: str, value: dict[str, Any]) -> None:
        """Put a JSON object in place in one step."""
        self.write(relative, json.dumps(value, ensure_ascii=False, indent=1).encode())
