"""Writers of an export's three formats: JSON lines, Parquet, or a folder a skill."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from storage.blobs import BlobStore
from storage.schemas import LicenceFile
from tasks.refine.export.paths import FreePaths, file_path, safe_path
from tasks.refine.licences.resolve import nearest_licence_files

_OLDEST = pl.CompatLevel.oldest()


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _write_lines(path: Path, rows: list[dict[str, Any]], mode: str = "w") -> None:
    with path.open(mode, encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps({k: _plain(v) for k, v in row.items()}, ensure_ascii=False) + "\n")


class JsonLinesWriter:
    """Writes `documents.jsonl` and `aliases.jsonl` into a folder, an object a line; times in ISO 8601."""

    def __init__(self, folder: Path, store: BlobStore) -> None:
        self._folder, self._store = folder, store

    def write(self, frame: pl.DataFrame) -> None:
        """Add documents; the first frame has every column and may have no row."""
        _write_lines(self._folder / "documents.jsonl", frame.to_dicts(), "a")

    def write_aliases(self, frame: pl.DataFrame) -> None:
        """Write ids that lead to exported documents: columns doc_id, survivor, kind."""
        _write_lines(self._folder / "aliases.jsonl", frame.to_dicts())

    def close(self) -> None:
        """Finish the files."""


class ParquetWriter(JsonLinesWriter):
    """Writes `documents.parquet`, a row group a frame, and `aliases.parquet`."""

    _file: pq.ParquetWriter | None = None

    def write(self, frame: pl.DataFrame) -> None:
        """Add a row group."""
        table: pa.Table = frame.to_arrow(compat_level=_OLDEST)
        if self._file is None:
            place = self._folder / "documents.parquet"
            self._file = pq.ParquetWriter(place, table.schema, compression="zstd", write_page_checksum=True)
        self._file.write_table(table)

    def write_aliases(self, frame: pl.DataFrame) -> None:
        """Write the aliases."""
        table: pa.Table = frame.to_arrow(compat_level=_OLDEST)
        pq.write_table(table, self._folder / "aliases.parquet", compression="zstd")

    def close(self) -> None:
        """Write the documents' footer."""
        if self._file is not None:
            self._file.close()


def skill_text(name: str, description: str | None, body: str, licence: str | None) -> str:
    """Return a SKILL.md rebuilt from its parts; strict YAML reads the same front matter back."""
    fields = {"name": name, "description": description, "license": licence}
    stated = {key: value for key, value in fields.items() if value}
    front = yaml.safe_dump(stated, allow_unicode=True, sort_keys=False, width=1_000_000)
    return f"---\n{front}---\n\n{body}\n"


# Licences ask to name the origin, and a skill's folder may be copied without the rest of the export.
_PROVENANCE = (
    "doc_id", "source", "repo", "ref", "commit", "path", "url", "author", "licence", "licence_rule",
    "raw_hash", "content_hash", "fetched_at",
)  # fmt: skip
_CHANGED = "SKILL.md was rebuilt from cleaned text, and keys in files were redacted: not the origin's bytes."
_OWN = ("SKILL.md", "PROVENANCE.json")  # what an export writes itself into each folder


class FolderWriter(JsonLinesWriter):
    """Writes a folder `skills/<id>/` for each document with text: SKILL.md, and what is kept of its files.

    All other columns go to JSON lines; `documents.jsonl` names a skill's folder in `exported_to`. Beside each
    SKILL.md lie `PROVENANCE.json` and, unless the bundle holds them, the nearest licence files of its origin,
    as `LICENSE`, `LICENSE.2`, ... Paths that would be equal on some file system are numbered.
    """

    def __init__(self, folder: Path, store: BlobStore) -> None:
        super().__init__(folder, store)
        self._free = FreePaths(folder)

    def write(self, frame: pl.DataFrame) -> None:
        """Write a folder for each document with text; append a line a document.

        Raises:
            StorageError: A bundled file is missing or damaged.
        """
        rows = frame.to_dicts()
        for row in rows:
            body = row.pop("body")
            row["exported_to"] = None if body is None else self._skill(row, body)
        _write_lines(self._folder / "documents.jsonl", rows, "a")

    def _skill(self, row: dict[str, Any], body: str) -> str:
        """Write a skill's folder and return its path, relative to the export."""
        path = self._free.of_folder(f"skills/{safe_path(row['doc_id'])}", _OWN)
        folder = self._folder / path
        folder.mkdir(parents=True, exist_ok=True)
        text = skill_text(row["name"], row["description"], body, row["licence"])
        (folder / "SKILL.md").write_text(text, encoding="utf-8", newline="\n")
        free = FreePaths(folder, _OWN)
        files = self._write_files(folder, row["blobs"] or (), free)
        licences = _write_licences(folder, row, files, free)
        origin = {key: _plain(row[key]) for key in _PROVENANCE}
        stated = origin | {"files": files, "licence_files": licences, "changes": _CHANGED}
        provenance = json.dumps(stated, ensure_ascii=False, indent=1) + "\n"
        (folder / "PROVENANCE.json").write_text(provenance, encoding="utf-8", newline="\n")
        return path

    def _write_files(
        self, folder: Path, blobs: Iterable[Mapping[str, Any]], free: FreePaths
    ) -> list[dict[str, str]]:
        """Write the bundled files and return where each went; none of them is ever executable."""
        written = []
        for blob in blobs:
            name = free.of_file(file_path(blob["path"]))
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self._store.read(blob["sha256"]))
            written.append({"file": name, "path": blob["path"], "sha256": blob["sha256"]})
        return written


def _write_licences(
    folder: Path, row: Mapping[str, Any], files: Iterable[Mapping[str, str]], free: FreePaths
) -> list[dict[str, str]]:
    bundled = {file["sha256"]: file["file"] for file in files}
    licences = []
    given = [LicenceFile(**file) for file in row["licence_files"] or ()]
    for number, file in enumerate(nearest_licence_files(row["path"], given), start=1):
        name = bundled.get(file.sha256)
        if name is None:
            name = free.of_file("LICENSE" if number == 1 else f"LICENSE.{number}")
            (folder / name).write_text(file.text or "", encoding="utf-8", newline="")
        licences.append({"file": name, "path": file.path, "sha256": file.sha256})
    return licences
