"""Corpora to be compared, read from wherever they lie: a root, a Parquet file, JSON lines."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.partitions import PARTITIONS, PartitionedTable
from storage.root import Root
from storage.schemas import DOCUMENTS
from tasks.refine.boilerplate import strip_boilerplate
from tasks.refine.canonical import canonical
from tasks.refine.quality import QUALITY, quality_frame

_FORM = "{doc_id, content}"
_COLUMNS: tuple[str, ...] = ("doc_id", "body", "files")
_BODY_OF = re.compile(r"\A\s*---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_SCHEMA = {name: DOCUMENTS[name] for name in _COLUMNS}


def _body(content: str) -> str:
    """Return what stands below the front matter, canonical and without aggregators' additions."""
    text, _ = canonical(content)
    body, _ = strip_boilerplate(_BODY_OF.sub("", text, count=1), "body")
    return canonical(body)[0]


def _of_contents(ids: pl.Series, contents: list[str | None]) -> pl.DataFrame:
    bodies = [_body(content or "") for content in contents]
    columns = {"doc_id": ids.cast(pl.String), "body": bodies, "files": [None] * len(bodies)}
    return pl.DataFrame(columns, schema=_SCHEMA)


def _root(path: Path) -> pl.DataFrame:
    root = Root(path)
    if not root.exists("documents"):
        msg = f"{path}: no root, it has no documents/; give a root, a Parquet file or JSON lines {_FORM}"
        raise WrongInput(msg)
    table = PartitionedTable(root, "documents", DOCUMENTS)
    parts = (quality_frame(table.read([part], _COLUMNS)) for part in range(PARTITIONS))
    return pl.concat([QUALITY.to_frame(), *parts])


def _parquet(path: Path) -> pl.DataFrame:
    try:
        columns = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        msg = f"{path}: cannot be read as Parquet ({error})"
        raise WrongInput(msg) from error
    key = next((name for name in ("doc_id", "id") if name in columns), None)
    if key is None or not {"content", "body"} & set(columns):
        msg = f"{path}: has no column doc_id or id, or none of content and body; found {', '.join(columns)}"
        raise WrongInput(msg)
    if "body" in columns:
        files = (
            pl.col("files") if "files" in columns else pl.lit(None, dtype=DOCUMENTS["files"]).alias("files")
        )
        return quality_frame(pl.scan_parquet(path).select(pl.col(key).alias("doc_id"), "body", files))
    frame = pl.read_parquet(path, columns=[key, "content"])
    return quality_frame(_of_contents(frame[key], frame["content"].to_list()))


def _lines(path: Path) -> pl.DataFrame:
    records = list(read_lines(path, _FORM))
    ids = pl.Series([text_field(record, "doc_id", where) for where, record in records], dtype=pl.String)
    return quality_frame(
        _of_contents(ids, [text_field(record, "content", where) for where, record in records])
    )


def load_corpus(spec: str) -> pl.DataFrame:
    """Return the quality measures of a corpus's documents, as `tasks.refine.quality.QUALITY` has them.

    Args:
        spec: A root (its current `documents/`), a Parquet file with doc_id or id and body or content, or a
            file of JSON lines `{doc_id, content}`. `content` is a whole SKILL.md; its bundle is unknown.

    Raises:
        WrongInput: There is nothing of the kind at `spec`, or it holds no document.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        frame = _root(path)
    elif not path.is_file():
        msg = f"{spec}: not found; give a root, a Parquet file or JSON lines {_FORM}"
        raise WrongInput(msg)
    else:
        frame = _parquet(path) if path.suffix == ".parquet" else _lines(path)
    if frame.is_empty():
        msg = f"{spec}: holds no documents"
        raise WrongInput(msg)
    return frame
