"""Writers of an export's three formats: Parquet, JSON lines, or a folder a skill."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from storage.schemas import LicenceFile
from tasks.refine.licences.resolve import nearest_licence_files

# Characters that some file system refuses, and names that mean something to one or to a reader of skills.
_UNSAFE = re.compile(r"[^\w.@+-]|\.(?=\.)")
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|com\d|lpt\d|skill\.md|license|provenance\.json)(?:\..*)?", re.IGNORECASE
)
_MAX_PART_BYTES = 80
# Systems take paths of 4,096 bytes, the export's own folder and the files' names included.
_MAX_PATH_BYTES = 1_000
_OLDEST = pl.CompatLevel.oldest()


class Writer(Protocol):
    """Writes documents, a frame at a time, into a folder that exists."""

    def __init__(self, folder: Path) -> None: ...

    def write(self, frame: pl.DataFrame) -> None:
        """Add documents; the first frame has every column and may have no row."""

    def write_aliases(self, frame: pl.DataFrame) -> None:
        """Write ids that lead to exported documents: columns doc_id, survivor, kind."""

    def close(self) -> None:
        """Finish the files."""


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _write_lines(path: Path, rows: list[dict[str, Any]], mode: str = "w") -> None:
    with path.open(mode, encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps({k: _plain(v) for k, v in row.items()}, ensure_ascii=False) + "\n")


class ParquetWriter:
    """Writes `documents.parquet` and `aliases.parquet`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: pq.ParquetWriter | None = None

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


class JsonLinesWriter:
    """Writes `documents.jsonl` and `aliases.jsonl`, an object a line; times in ISO 8601."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, frame: pl.DataFrame) -> None:
        """Append a line a document."""
        _write_lines(self._folder / "documents.jsonl", frame.to_dicts(), "a")

    def write_aliases(self, frame: pl.DataFrame) -> None:
        """Write the aliases."""
        _write_lines(self._folder / "aliases.jsonl", frame.to_dicts())

    def close(self) -> None:
        """Do nothing: no file stays open."""


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
_CHANGED = "SKILL.md was rebuilt from cleaned text: it is not the origin's byte for byte."


class FolderWriter(JsonLinesWriter):
    """Writes `skills/<id>/SKILL.md` for each document with its text, and all other columns to JSON lines.

    `documents.jsonl` names a skill's folder in `exported_to`. Beside each SKILL.md lie `PROVENANCE.json` and
    the nearest licence files of its origin, as `LICENSE`, `LICENSE.2`, ... Folders whose names would be equal
    on some file system are numbered.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._taken: set[str] = set()

    def write(self, frame: pl.DataFrame) -> None:
        """Write a folder for each document with text; append a line a document."""
        rows = frame.to_dicts()
        for row in rows:
            body = row.pop("body")
            row["exported_to"] = None if body is None else self._skill(row, body)
        _write_lines(self._folder / "documents.jsonl", rows, "a")

    def _skill(self, row: dict[str, Any], body: str) -> str:
        """Write a skill's folder and return its path, relative to the export."""
        path = f"skills/{self._free(safe_path(row['doc_id']))}"
        (self._folder / path).mkdir(parents=True, exist_ok=True)
        text = skill_text(row["name"], row["description"], body, row["licence"])
        (self._folder / path / "SKILL.md").write_text(text, encoding="utf-8", newline="\n")
        _write_origin(self._folder / path, row)
        return path

    def _free(self, path: str) -> str:
        """Return the path, with a number if it is taken in any letter case."""
        tried, number = path, 1
        while tried.casefold() in self._taken:
            number += 1
            tried = f"{path}~{number}"
        self._taken.add(tried.casefold())
        return tried


def _write_origin(folder: Path, row: Mapping[str, Any]) -> None:
    """Write a skill's provenance, and the licence files nearest to it in its repository."""
    licences = []
    given = [LicenceFile(**file) for file in row["licence_files"] or ()]
    for number, file in enumerate(nearest_licence_files(row["path"], given), start=1):
        name = "LICENSE" if number == 1 else f"LICENSE.{number}"
        (folder / name).write_text(file.text or "", encoding="utf-8", newline="")
        licences.append({"file": name, "path": file.path, "sha256": file.sha256})
    origin = {key: _plain(row[key]) for key in _PROVENANCE}
    told = origin | {"licence_files": licences, "changes": _CHANGED}
    text = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    (folder / "PROVENANCE.json").write_text(text, encoding="utf-8", newline="\n")
