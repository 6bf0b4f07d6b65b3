"""The records that pass between stages: dataclasses for code, and the Polars schemas of their files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import polars as pl

# 1 had no `repo_licence`, 2 no `states`, 3 no `inferred_by`, 4 no `contents`, `blobs` and `near`
SCHEMA_VERSION = 5
NODE_TYPES = ("step", "example", "param", "precondition", "error_handling", "concept")
EDGE_TYPES = ("sequence", "semantic", "reference", "condition")
Severity = Literal["error", "warning", "info"]
Block = Literal["prose", "list_item", "code", "table", "html"]
BLOCKS = get_args(Block)
TIME = pl.Datetime("us", "UTC")
# Numbers of fewer bits than Python's, in the files.
Small = Annotated[int, pl.Int32()]
Single = Annotated[float, pl.Float32()]
_TYPES: dict[object, pl.DataType] = {
    str: pl.String(), int: pl.Int64(), float: pl.Float64(), bytes: pl.Binary(), datetime: TIME,
}  # fmt: skip


def schema_of_record(record: type, **more: Any) -> pl.Schema:  # noqa: ANN401 (types of Polars)
    """Return the schema of the files of a dataclass: its fields in order, then `more` columns."""
    columns: dict[str, Any] = {name: _column(hint) for name, hint in _hints(record).items()}
    return pl.Schema({**columns, **more})


def _hints(record: type) -> dict[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    return {field.name: hints[field.name] for field in fields(record)}


def _column(hint: Any) -> pl.DataType:  # noqa: ANN401 (what an annotation may be)
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        found: pl.DataType = parts[1]
        return found
    if kind in (Union, UnionType):  # with None: any column may hold nulls
        return _column(parts[0])
    if kind is tuple:
        return pl.List(_column(parts[0]))
    if kind is Literal:
        return pl.String()
    if is_dataclass(hint):
        assert isinstance(hint, type)  # noqa: S101 (for the types)
        return pl.Struct({name: _column(inner) for name, inner in _hints(hint).items()})
    return _TYPES[hint]


@dataclass(frozen=True, slots=True)
class Finding:
    """One graded remark on a document: a stable dotted code, a severity, and what was found."""

    code: str
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A file beside a SKILL.md: its path relative to the skill's folder, bytes, and SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class FileContent:
    """The bytes of a file beside a SKILL.md, as fetched; `path` is that of its `BundledFile`."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class LicenceFile:
    """A licence file of a skill's folder or of a folder above it, path relative to the repository."""

    path: str
    sha256: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDocument:
    """One document as fetched, before anything judges it.

    `content` holds the bytes of its SKILL.md, None where they were over the limit; of an `mcp-server` a JSON
    object with what its list says of it, `name` and `description` at least. `contents` holds the bytes of
    those of its `files` that are kept. `repo_licence` is the SPDX identifier that the forge gives its whole
    repository.
    """

    doc_id: str
    kind: str = "skill"
    source: str
    repo: str | None = None
    repo_id: str | None = None
    ref: str | None = None
    commit: str | None = None
    tree_sha: str | None = None
    path: str | None = None
    url: str | None = None
    author: str | None = None
    stars: int | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    content: bytes | None
    size: int
    raw_hash: str
    files: tuple[BundledFile, ...] | None = None
    contents: tuple[FileContent, ...] = ()
    licence_files: tuple[LicenceFile, ...] = ()
    repo_licence: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """One row of a marketplace, as it says it; `updated_at` is in UTC, None where it cannot be told."""

    source: str
    source_id: str
    kind: str = "skill"
    name: str | None = None
    description: str | None = None
    author: str | None = None
    url: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    stars: int | None = None
    repo_id: str | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something left out, and why; `lost_to` names the survivor of a duplicate."""

    doc_id: str
    source: str
    reason: str
    detail: str
    rule: str = ""
    content_hash: str | None = None
    lost_to: str | None = None
    similarity: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One refined skill: canonical text, where it comes from, what was found in it.

    `inferred` names the fields its author left out; `body_hash` is the SHA-256 of `body`, `content_hash` that
    of name, description and body, `raw_hash` that of the bytes fetched; `files` are those of its folder as
    fetched, None where the bundle is unknown; `blobs` are those of them whose bytes are kept, redacted, each
    with the size and SHA-256 of what is kept; `licence` is an SPDX expression, None where none is known.
    """

    doc_id: str
    kind: str = "skill"
    name: str
    description: str
    body: str
    inferred: tuple[str, ...] = ()
    body_hash: str
    content_hash: str
    raw_hash: str
    source: str
    repo: str | None = None
    repo_id: str | None = None
    ref: str | None = None
    commit: str | None = None
    tree_sha: str | None = None
    path: str | None = None
    url: str | None = None
    author: str | None = None
    stars: int | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    language: str | None = None
    files: tuple[BundledFile, ...] | None = None
    blobs: tuple[BundledFile, ...] = ()
    licence: str | None = None
    licence_rule: str | None = None
    licence_files: tuple[LicenceFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    risks: tuple[Finding, ...] = ()
    fetched_at: datetime
    first_seen_at: datetime


@dataclass(frozen=True, slots=True)
class Node:
    """A typed piece of a document: `text == body[start:end]`, in document order by `ordinal` from 0."""

    node_id: str
    doc_id: str
    ordinal: Small
    node_type: str
    heading_path: tuple[str, ...]
    lead_in: str | None
    block: str
    start: Small
    end: Small
    text: str
    n_tokens: Small
    classifier: str
    confidence: Single


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed relation between two nodes of one document; `weight` is a cosine for `semantic`, else 1.

    `inferred_by` is `rules`, `rules:fallback` where a language model should have answered, or the name of its
    prompt and of the model; None in rows of schema versions before 4.
    """

    src_id: str
    dst_id: str
    edge_type: str
    weight: Single
    inferred_by: str | None = "rules"


LISTINGS = schema_of_record(Listing, seen_at=TIME, run_id=pl.String, schema_version=pl.Int32)
RAW_DOCUMENTS = schema_of_record(RawDocument, fetched_at=TIME, run_id=pl.String, schema_version=pl.Int32)
DOCUMENTS = schema_of_record(Document, run_id=pl.String, schema_version=pl.Int32)
NODES = schema_of_record(Node)
EDGES = schema_of_record(Edge)
DROPPED = schema_of_record(Dropped, run_id=pl.String)


class Qrel(NamedTuple):
    """A graded judgement: relevance 0 is not relevant."""

    query_id: str
    doc_id: str
    relevance: int


class ScoredDoc(NamedTuple):
    """One line of a run: what a retriever returned for a query; higher scores rank first."""

    query_id: str
    doc_id: str
    score: float


def _plain(value: object) -> object:
    """Turn nested dataclasses and tuples into dicts and lists, which Polars reads as structs and lists."""
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def to_frame(rows: Iterable[object], schema: pl.Schema, **constant: object) -> pl.DataFrame:
    """Return dataclass rows as a frame with exactly `schema`'s columns; those that nothing gives are null.

    `constant` columns are the same in every row (`run_id`, `schema_version`, ...).
    """
    held = list(rows)
    columns = {
        name: [constant[name]] * len(held)
        if name in constant
        else [_plain(getattr(row, name, None)) for row in held]
        for name in schema
    }
    return pl.DataFrame(columns, schema=schema)


def content_hash(name: str, description: str, body: str) -> str:
    """Return the SHA-256 of name, description and body as hexadecimal."""
    encoded = [part.encode() for part in (name, description, body)]
    # Its length stands before each part: else text moved from one part to the next would give the same hash.
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in encoded)).hexdigest()
