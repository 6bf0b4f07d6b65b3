"""The records that pass between stages: Polars schemas for files, dataclasses for code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple

import polars as pl

# 1 had no `repo_licence`, 2 no `states`, 3 no `inferred_by`, 4 no `contents`, `blobs` and `near`
SCHEMA_VERSION = 5
NODE_TYPES = ("step", "example", "param", "precondition", "error_handling", "concept")
EDGE_TYPES = ("sequence", "semantic", "reference", "condition")
BLOCKS = ("prose", "list_item", "code", "table", "html")
Severity = Literal["error", "warning", "info"]
Block = Literal["prose", "list_item", "code", "table", "html"]
_TIME = pl.Datetime("us", "UTC")
_TEXTS = pl.List(pl.String)
FILE = pl.Struct({"path": pl.String, "size": pl.Int64, "sha256": pl.String})
FILE_CONTENT = pl.Struct({"path": pl.String, "content": pl.Binary})
LICENCE_FILE = pl.Struct({"path": pl.String, "sha256": pl.String, "text": pl.String})
FINDING = pl.Struct({"code": pl.String, "severity": pl.String, "message": pl.String})
# What every stage knows of where a text comes from.
_ORIGIN: dict[str, Any] = {
    "source": pl.String, "repo": pl.String, "repo_id": pl.String, "ref": pl.String, "commit": pl.String,
    "tree_sha": pl.String, "path": pl.String, "url": pl.String, "author": pl.String, "stars": pl.Int64,
    "category": pl.String, "tags": _TEXTS,
}  # fmt: skip
_LISTINGS: dict[str, Any] = {
    "source": pl.String, "source_id": pl.String, "kind": pl.String, "name": pl.String,
    "description": pl.String, "author": pl.String, "url": pl.String, "category": pl.String, "tags": _TEXTS,
    "stars": pl.Int64, "repo_id": pl.String, "updated_at": _TIME, "seen_at": _TIME,
    "run_id": pl.String, "schema_version": pl.Int32,
}  # fmt: skip
LISTINGS = pl.Schema(_LISTINGS)
_RAW_DOCUMENTS: dict[str, Any] = {
    "doc_id": pl.String, "kind": pl.String, **_ORIGIN, "content": pl.Binary, "size": pl.Int64,
    "raw_hash": pl.String, "files": pl.List(FILE), "contents": pl.List(FILE_CONTENT),
    "licence_files": pl.List(LICENCE_FILE), "repo_licence": pl.String, "findings": pl.List(FINDING),
    "fetched_at": _TIME, "run_id": pl.String, "schema_version": pl.Int32,
}  # fmt: skip
RAW_DOCUMENTS = pl.Schema(_RAW_DOCUMENTS)
_DOCUMENTS: dict[str, Any] = {
    "doc_id": pl.String, "kind": pl.String, "name": pl.String, "description": pl.String, "body": pl.String,
    "inferred": _TEXTS, "body_hash": pl.String, "content_hash": pl.String, "raw_hash": pl.String, **_ORIGIN,
    "language": pl.String, "files": pl.List(FILE), "blobs": pl.List(FILE), "licence": pl.String,
    "licence_rule": pl.String, "licence_files": pl.List(LICENCE_FILE), "findings": pl.List(FINDING),
    "risks": pl.List(FINDING), "fetched_at": _TIME, "first_seen_at": _TIME, "run_id": pl.String,
    "schema_version": pl.Int32,
}  # fmt: skip
DOCUMENTS = pl.Schema(_DOCUMENTS)
_NODES: dict[str, Any] = {
    "node_id": pl.String, "doc_id": pl.String, "ordinal": pl.Int32, "node_type": pl.String,
    "heading_path": _TEXTS, "lead_in": pl.String, "block": pl.String, "start": pl.Int32, "end": pl.Int32,
    "text": pl.String, "n_tokens": pl.Int32, "classifier": pl.String, "confidence": pl.Float32,
}  # fmt: skip
NODES = pl.Schema(_NODES)
EDGES = pl.Schema({
    "src_id": pl.String, "dst_id": pl.String, "edge_type": pl.String, "weight": pl.Float32,
    "inferred_by": pl.String,
})  # fmt: skip
DROPPED = pl.Schema({
    "run_id": pl.String, "doc_id": pl.String, "source": pl.String, "content_hash": pl.String,
    "reason": pl.String, "rule": pl.String, "detail": pl.String, "lost_to": pl.String,
    "similarity": pl.Float64,
})  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One document as fetched, before anything judges it.

    `content` holds the bytes of its SKILL.md, None where they were over the limit; of an `mcp-server` a JSON
    object with what its list says of it, `name` and `description` at least. `contents` holds the bytes of
    those of its `files` that are kept. `repo_licence` is the SPDX identifier that the forge gives its whole
    repository.
    """

    doc_id: str
    source: str
    content: bytes | None
    size: int
    raw_hash: str
    kind: str = "skill"
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


@dataclass(frozen=True, slots=True)
class Document:
    """One refined skill: canonical text, where it comes from, what was found in it.

    `inferred` names the fields its author left out; `body_hash` is the SHA-256 of `body`, `content_hash` that
    of name, description and body, `raw_hash` that of the bytes fetched; `files` are those of its folder as
    fetched, None where the bundle is unknown; `blobs` are those of them whose bytes are kept, redacted, each
    with the size and SHA-256 of what is kept; `licence` is an SPDX expression, None where none is known.
    """

    doc_id: str
    source: str
    name: str
    description: str
    body: str
    body_hash: str
    content_hash: str
    raw_hash: str
    fetched_at: datetime
    first_seen_at: datetime
    kind: str = "skill"
    inferred: tuple[str, ...] = ()
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
    risks: tuple[Finding, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Node:
    """A typed piece of a document: `text == body[start:end]`, in document order by `ordinal` from 0."""

    node_id: str
    doc_id: str
    ordinal: int
    node_type: str
    heading_path: tuple[str, ...]
    lead_in: str | None
    block: str
    start: int
    end: int
    text: str
    n_tokens: int
    classifier: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed relation between two nodes of one document; `weight` is a cosine for `semantic`, else 1.

    `inferred_by` is `rules`, `rules:fallback` where a language model should have answered, or the name of its
    prompt and of the model; None in rows of schema versions before 4.
    """

    src_id: str
    dst_id: str
    edge_type: str
    weight: float
    inferred_by: str | None = "rules"


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

    Args:
        rows: Dataclass instances whose fields are columns of `schema`.
        schema: The frame's columns and types.
        constant: Values for columns that are the same in every row (`run_id`, `schema_version`, ...).
    """
    held = list(rows)
    columns = {
        name: [constant[name]] * len(held)
        if name in constant
        else [_plain(getattr(row, name, None)) for row in held]
        for name in schema
    }
    return pl.DataFrame(columns, schema=schema)
