"""Reads `parquet:PATH`, a corpus that was gathered before: a Parquet file with one skill in each row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.errors import SourceError
from storage.schemas import Dropped, Finding, RawDocument
from tasks.crawl.source.base import Source
from tasks.crawl.source.bundle import (
    DEFAULT_LIMITS,
    Bundle,
    DocumentLimits,
    SourceEntry,
    checked,
    consume,
    take_bundle,
    too_large,
)
from tasks.crawl.source.identity import doc_key
from tasks.models.fields import count_of

_OPTIONAL = ("source_url", "owner", "repo", "branch", "path", "stars", "category")
_OR_UNKNOWN = ("stars", "category")  # where they make no sense, the row is read all the same
_TEXT_TYPES = (
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
)


class _Unreadable(NamedTuple):
    why: str


class ParquetSource(Source):
    """The rows of a Parquet file with `id` (or `doc_id`) and `content`, `batch_rows` in memory at a time."""

    def __init__(self, path: str, *, limits: DocumentLimits = DEFAULT_LIMITS, batch_rows: int = 64) -> None:
        self.spec, self._path = f"parquet:{path}", Path(path).expanduser()
        self._limits, self._batch_rows = limits, batch_rows

    def version(self) -> str:
        """Return the file's SHA-256; raise SourceError if it is `missing` or `unreadable`."""
        self._check_exists()
        try:
            with self._path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise SourceError(self.spec, "unreadable", error.strerror or str(error)) from error

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield a document for each row; rows without id or content, or with an id seen before, are dropped.

        Reasons of SourceError: `missing`, `not-parquet`, `columns` (missing or of another type), `damaged`.
        """
        self._check_exists()
        seen: dict[str, str] = {}  # first ids by their keys
        with self._open() as file:
            columns = self._columns(file.schema_arrow)
            for number, row in enumerate(self._rows(file, columns), start=1):
                yield self._row(row, number, seen)

    def _check_exists(self) -> None:
        if not self._path.is_file():
            raise SourceError(self.spec, "missing", "there is no such file; check the path")

    def _open(self) -> pq.ParquetFile:
        try:
            # Without the map Arrow reads the chosen columns whole before it gives the first row.
            return pq.ParquetFile(self._path, memory_map=True)
        except (pa.ArrowInvalid, OSError) as error:
            detail = f"this is no Parquet file ({_line(error)})"
            raise SourceError(self.spec, "not-parquet", detail) from error

    def _columns(self, schema: pa.Schema) -> dict[str, str]:
        names = set(schema.names)
        missing = [] if names & {"id", "doc_id"} else ["id (or doc_id)"]
        missing += [] if "content" in names else ["content"]
        if missing:
            found = ", ".join(sorted(names)) or "none"
            detail = f"columns missing: {', '.join(missing)}; columns found: {found}"
            raise SourceError(self.spec, "columns", detail)
        kind = schema.field("content").type
        if not _is_text(kind):
            raise SourceError(self.spec, "columns", f"column content is {kind}; it must be text or binary")
        identifier = "id" if "id" in names else "doc_id"
        optional = [*_OPTIONAL, *(["files"] if "files" in names and _holds_files(schema) else [])]
        return {"id": identifier, "content": "content"} | {c: c for c in optional if c in names}

    def _rows(self, file: pq.ParquetFile, columns: dict[str, str]) -> Iterator[dict[str, Any]]:
        try:
            for batch in file.iter_batches(batch_size=self._batch_rows, columns=sorted(columns.values())):
                values = {field: _values(batch.column(name), field) for field, name in columns.items()}
                for cells in zip(*values.values(), strict=True):
                    yield dict(zip(values, cells, strict=True))
        except (pa.ArrowException, OSError) as error:
            detail = f"the file cannot be read to its end ({_line(error)})"
            raise SourceError(self.spec, "damaged", detail) from error

    def _row(self, row: dict[str, Any], number: int, seen: dict[str, str]) -> RawDocument | Dropped:
        bad = {field: value for field, value in row.items() if isinstance(value, _Unreadable)}
        doc_id, content = _text(row["id"]), row["content"]
        if bad:
            field, value = next(iter(bad.items()))
            return Dropped(
                doc_id or "", self.spec, "unreadable", f"row {number}, column {field}: {value.why}"
            )
        if doc_id is None:
            return Dropped("", self.spec, "missing_id", f"row {number} has no id")
        if content is None:
            return Dropped(doc_id, self.spec, "empty", f"row {number} has no content")
        if first := seen.get(doc_key(doc_id)):
            return Dropped(doc_id, self.spec, "duplicate_id", f"row {number}", lost_to=first)
        seen[doc_key(doc_id)] = doc_id
        text = consume([content])
        fits = text.size <= self._limits.document_bytes
        owner, repo = _text(row.get("owner")), _text(row.get("repo"))
        findings = [] if fits else [too_large(text.size, self._limits.document_bytes)]
        bundle = _bundle(row.get("files"), self._limits, findings)
        return RawDocument(
            doc_id=doc_id, source=self.spec, content=content if fits else None, size=text.size,
            raw_hash=text.sha256,
            repo=f"{owner}/{repo}" if owner and repo else repo, ref=_text(row.get("branch")),
            path=_text(row.get("path")), url=_text(row.get("source_url")), author=owner,
            stars=row.get("stars"), category=_text(row.get("category")),
            files=bundle.files, contents=bundle.contents, findings=tuple(findings),
        )  # fmt: skip


_Files = list[tuple[str | None, bytes | None]]


def _is_text(kind: pa.DataType) -> bool:
    return (kind.value_type if pa.types.is_dictionary(kind) else kind) in _TEXT_TYPES


def _holds_files(schema: pa.Schema) -> bool:
    """Tell whether the column `files` is a list of structs with a path and a content."""
    kind = schema.field("files").type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type.fields}
    return all(name in fields and _is_text(fields[name]) for name in ("path", "content"))


def _bundle(rows: _Files | None, limits: DocumentLimits, findings: list[Finding]) -> Bundle:
    """Return the bundle of a row, in the order of its paths; SKILL.md among them is the content already."""
    if rows is None:
        return Bundle(None)
    named: dict[str, bytes] = {}
    for path, content in rows:
        entry = checked(SourceEntry(path or ""))
        if entry.kind == "unreadable" or path is None or content is None or path in named:
            why = entry.note or ("it has no content" if content is None else "it is there twice")
            findings.append(Finding("bundle.unreadable", "warning", f"{entry.path}: {why}"))
        elif path.lower() != "skill.md":
            named[path] = content
    entries = [SourceEntry(path, size=len(named[path])) for path in sorted(named)]
    return take_bundle(entries, lambda entry, keep: consume([named[entry.path]], keep), limits, findings)


def _files(cell: pa.Scalar) -> _Files | _Unreadable | None:
    if not cell.is_valid:
        return None
    try:
        paths, contents = (_plain(cell.values.field(name)) for name in ("path", "content"))
        decoded = [None if path is None else path.decode() for path in paths]
    except (pa.ArrowException, ValueError) as error:
        return _Unreadable(_line(error))
    return list(zip(decoded, contents, strict=True))


def _values(column: pa.Array, field: str) -> list[Any]:
    """Return a column's values; content as bytes, since a text column may hold invalid UTF-8."""
    if field == "files":
        return [_files(cell) for cell in column]
    return _plain(column) if field == "content" else [_value(cell, field) for cell in column]


def _plain(column: pa.Array) -> list[bytes | None]:
    plain = pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return list(pc.cast(plain, pa.large_binary()).to_pylist())


def _value(cell: pa.Scalar, field: str) -> object:
    """Return what a cell holds, or why it is of no use; of `_OR_UNKNOWN` None then."""
    try:
        value = cell.as_py()
        if field == "stars":
            return count_of(value)
        value = value.decode() if isinstance(value, bytes) else value
    except (pa.ArrowException, ArithmeticError, ValueError) as error:
        return None if field in _OR_UNKNOWN else _Unreadable(_line(error))
    if isinstance(value, list | dict):
        return None if field in _OR_UNKNOWN else _Unreadable(f"{cell.type} is no text")
    return value


# Not `fields.text_of`: ids count as given, with the blanks around them.
def _text(value: object) -> str | None:
    text = "" if value is None or isinstance(value, _Unreadable) else str(value)
    return text if text.strip() else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
