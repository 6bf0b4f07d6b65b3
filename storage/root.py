"""The root: one folder or one `s3://` prefix, below which everything is read and written."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from storage.errors import StorageError, WrongInput

_UNFINISHED = ".tmp"


class Root:
    """A folder or an `s3://bucket/prefix`; paths below it are relative, with forward slashes.

    Args:
        spec: A path, or `s3://bucket/prefix` (credentials and endpoint from the usual AWS variables).

    Raises:
        WrongInput: `spec` names a file, or an address of another kind.
    """

    def __init__(self, spec: str | Path) -> None:
        text = str(spec)
        self.local: Path | None = None
        if text.startswith("s3://"):
            endpoint = os.environ.get("AWS_ENDPOINT_URL")
            self._fs: pafs.FileSystem = pafs.S3FileSystem(endpoint_override=endpoint)
            self._base = text.removeprefix("s3://").rstrip("/")
            self.uri = f"s3://{self._base}"
            return
        if "://" in text:
            msg = f"root {text!r} is neither a folder nor an s3:// prefix"
            raise WrongInput(msg)
        self.local = Path(text).expanduser().absolute()
        if self.local.exists() and not self.local.is_dir():
            msg = f"root {text!r} is a file: name a folder"
            raise WrongInput(msg)
        self._fs = pafs.LocalFileSystem()
        self._base = self.uri = str(self.local)

    def at(self, relative: str) -> str:
        """Return the address of `relative` for libraries that open it themselves (Polars, LanceDB)."""
        return f"{self.uri}/{relative}"

    def exists(self, relative: str) -> bool:
        """Tell whether a file or folder of that name is there."""
        return bool(self._fs.get_file_info(self._key(relative)).type != pafs.FileType.NotFound)

    def read(self, relative: str) -> bytes:
        """Return a file's bytes.

        Raises:
            StorageError: The file is not there, or cannot be read.
        """
        try:
            with self._fs.open_input_stream(self._key(relative), compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError as error:
            msg = f"{self.at(relative)} is missing"
            raise StorageError(msg) from error
        except OSError as error:
            msg = f"{self.at(relative)} cannot be read ({str(error).splitlines()[0]})"
            raise StorageError(msg) from error

    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place in one step: readers see the old bytes or the new ones, never a part."""
        key = self._key(relative)
        if self.local is None:
            self._put(key, data)
            return
        self._fs.create_dir(key.rpartition("/")[0], recursive=True)
        beside = f"{key}.{uuid.uuid4().hex[:8]}{_UNFINISHED}"
        try:
            self._put(beside, data)
            self._fs.move(beside, key)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise

    def _put(self, key: str, data: bytes) -> None:
        with self._fs.open_output_stream(key, compression=None) as stream:
            stream.write(data)

    def delete(self, relative: str) -> None:
        """Remove a file or a folder with all below it; nothing happens where there is none."""
        info = self._fs.get_file_info(self._key(relative))
        if info.type == pafs.FileType.Directory:
            self._fs.delete_dir(self._key(relative))
        elif info.type == pafs.FileType.File:
            self._fs.delete_file(self._key(relative))

    def files(self, folder: str, suffix: str = "") -> list[str]:
        """Return the files below `folder` at any depth whose names end in `suffix`, sorted.

        What a write that was killed left behind is not among them.
        """
        selector = pafs.FileSelector(self._key(folder), recursive=True, allow_not_found=True)
        found = (i.path for i in self._fs.get_file_info(selector) if i.type == pafs.FileType.File)
        whole = (str(p) for p in found if str(p).endswith(suffix) and not str(p).endswith(_UNFINISHED))
        return sorted(p.removeprefix(f"{self._base}/") for p in whole)

    def size(self, folder: str) -> int:
        """Return the bytes held by the files below `folder`."""
        selector = pafs.FileSelector(self._key(folder), recursive=True, allow_not_found=True)
        return sum(int(i.size or 0) for i in self._fs.get_file_info(selector))

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

    def _key(self, relative: str) -> str:
        return f"{self._base}/{relative}" if relative else self._base
