"""Corpora to be compared, read from wherever they lie: a root, a Parquet file, JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.partitions import PARTITIONS, PartitionedTable
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table
from tasks.refine.structure import QUALITY, quality_frame
from tasks.refine.text.boilerplate import strip_boilerplate
from tasks.refine.text.canonical import canonical

_FORM = "{doc_id, content or body}"
_COLUMNS: tuple[str, ...] = ("doc_id", "body", "files")
_BODY_OF = re.compile(r"\A\s*---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_SCHEMA = {name: DOCUMENTS[name] for name in _COLUMNS}


def _body(content: str) -> str:
    """Return what stands below the front matter, canonical and without aggregators' additions."""
    text, _ = canonical(content)
    body, _ = strip_boilerplate(_BODY_OF.sub("", text, count=1), "body")
    return canonical(body)[0]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The measures of a corpus's documents (`tasks.refine.structure.QUALITY`), and how many have no text.

    An export holds documents without text where their licence keeps it back: they are counted, not measured.
    """

    measures: pl.DataFrame
    without_text: int


def _measured(frames: Iterable[pl.DataFrame]) -> Corpus:
    measures, without_text = [QUALITY.to_frame()], 0
    for frame in frames:
        with_text = frame.filter(pl.col("body").is_not_null())
        without_text += frame.height - with_text.height
        measures.append(quality_frame(with_text))
    return Corpus(pl.concat(measures), without_text)


def _of_contents(ids: pl.Series, contents: list[str | None]) -> pl.DataFrame:
    bodies = [None if content is None else _body(content) for content in contents]
    columns = {"doc_id": ids.cast(pl.String), "body": bodies, "files": [None] * len(bodies)}
    return pl.DataFrame(columns, schema=_SCHEMA)


def _folder(path: Path) -> Corpus:
    """Measure a root, or what an export of any format left in a folder."""
    if (path / "documents").is_dir():
        return _root(path)
    if (path / "skills").is_dir():
        files = sorted((path / "skills").rglob("SKILL.md"))
        ids = pl.Series([file.parent.relative_to(path).as_posix() for file in files], dtype=pl.String)
        return _measured([_of_contents(ids, [file.read_text("utf-8") for file in files])])
    for name, measured in (("documents.parquet", _parquet), ("documents.jsonl", _lines)):
        if (path / name).is_file():
            return measured(path / name)
    msg = f"{path}: no root and no export; give one, a Parquet file or JSON lines {_FORM}"
    raise WrongInput(msg)


def _root(path: Path) -> Corpus:
    root = Root(path)
    table = PartitionedTable(root, "documents", DOCUMENTS)
    return _measured(table.read([part], _COLUMNS) for part in range(PARTITIONS))


def _parquet(path: Path) -> Corpus:
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
        lazy = pl.scan_parquet(path).select(pl.col(key).alias("doc_id"), "body", files)
        without_text = lazy.select(pl.col("body").null_count()).collect(engine="streaming").item()
        return Corpus(quality_frame(lazy.filter(pl.col("body").is_not_null())), without_text)
    frame = pl.read_parquet(path, columns=[key, "content"])
    return _measured([_of_contents(frame[key], frame["content"].to_list())])


def _lines(path: Path) -> Corpus:
    rows: list[dict[str, Any]] = []
    for where, record in read_lines(path, _FORM):
        doc_id = text_field(record, "doc_id", where)
        if "body" not in record:
            body: str | None = _body(text_field(record, "content", where))
        else:
            body = None if record["body"] is None else text_field(record, "body", where)
        rows.append({"doc_id": doc_id, "body": body, "files": _files(record.get("files"), where)})
    return _measured([pl.DataFrame(rows, schema=_SCHEMA)])


def _files(given: object, where: str) -> list[dict[str, Any]] | None:
    """Return the bundle that an exported line has, None where it has none.

    Raises:
        WrongInput: It is no list of files.
    """
    if given is None:
        return None
    if isinstance(given, list) and all(isinstance(f, dict) and isinstance(f.get("path"), str) for f in given):
        return [{"path": file["path"], "size": None, "sha256": None} for file in given]
    msg = f"{where}: `files` is no list of objects {{path, ...}}; leave it out where the bundle is unknown"
    raise WrongInput(msg)


def load_corpus(spec: str) -> Corpus:
    """Return the quality measures of a corpus's documents, and how many have no text to measure.

    Args:
        spec: A root (its current `documents/`), an export's folder, a Parquet file with doc_id or id and body
            or content, or a file of JSON lines with the same. `content` is a whole SKILL.md, its bundle
            unknown; `body` is what an export has, `files` beside it its bundle.

    Raises:
        WrongInput: There is nothing of the kind at `spec`, or it holds no document with text.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        corpus = _folder(path)
    elif not path.is_file():
        msg = f"{spec}: not found; give a root, a Parquet file or JSON lines {_FORM}"
        raise WrongInput(msg)
    else:
        corpus = _parquet(path) if path.suffix == ".parquet" else _lines(path)
    if corpus.measures.is_empty():
        withheld = f" with text ({corpus.without_text} without)" if corpus.without_text else ""
        msg = f"{spec}: holds no documents{withheld}"
        raise WrongInput(msg)
    return corpus


def read_categories(paths: Iterable[Path]) -> dict[str, str]:
    """Return the category of each skill that has one, by doc_id; of a skill in two corpora the first.

    Args:
        paths: Corpora as `read_skills` takes them; their column or key `category`, if there is one.

    Raises:
        WrongInput: A file of JSON lines cannot be read.
    """
    found: dict[str, str] = {}
    for path in paths:
        for doc_id, category in _of(path):
            if category and category.strip():
                found.setdefault(doc_id, category.strip())
    return found


def _of(path: Path) -> Iterator[tuple[str, str | None]]:
    if path.is_dir():
        yield from documents_table(Root(path)).read(columns=["doc_id", "category"]).iter_rows()
    elif path.suffix == ".parquet":
        columns = pl.read_parquet_schema(path)
        if "category" in columns:
            key = "doc_id" if "doc_id" in columns else "id"
            yield from pl.read_parquet(path, columns=[key, "category"]).cast(pl.String).iter_rows()
    else:
        for _, record in read_lines(path, "{doc_id, content}"):
            category = record.get("category")
            if isinstance(category, str):
                yield str(record.get("doc_id", record.get("id"))), category


_TEXTS_FORM = "give a root, or a Parquet file with doc_id or id, and content or body"


def corpus_texts(spec: str) -> dict[str, str]:
    """Return the text of every skill of a corpus by its id, as `paging.bench.prepare` reads it.

    Args:
        spec: A root (its current `documents/`), or a Parquet file with doc_id or id and content (a whole
            SKILL.md) or body. A row without text is passed over.

    Raises:
        WrongInput: There is nothing of the kind at `spec`, or it holds no text.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        frame, whole = _of_root(path), False
    elif path.is_file():
        frame, whole = _of_parquet(path)
    else:
        msg = f"{spec}: not found; {_TEXTS_FORM}"
        raise WrongInput(msg)
    rows = frame.drop_nulls().iter_rows()
    texts = {str(doc_id): text if whole else bare(text) for doc_id, text in rows}
    if not texts:
        msg = f"{spec}: holds no text of a skill; {_TEXTS_FORM}"
        raise WrongInput(msg)
    return texts


def bare(body: str) -> str:
    """Return a body with an empty front matter before it, so that none of its own lines is taken for one."""
    return f"---\nname: skill\n---\n{body}"


def _of_root(path: Path) -> pl.DataFrame:
    root = Root(path)
    if not root.exists("documents"):
        msg = f"{path}: no root, it has no documents/; {_TEXTS_FORM}"
        raise WrongInput(msg)
    rows = documents_table(root).read(columns=("doc_id", "kind", "body"))
    return rows.filter(pl.col("kind") == "skill").select("doc_id", "body")


def _of_parquet(path: Path) -> tuple[pl.DataFrame, bool]:
    try:
        columns = pl.read_parquet_schema(path)
        key = next((name for name in ("doc_id", "id") if name in columns), None)
        text = next((name for name in ("content", "body") if name in columns), None)
        if key is None or text is None:
            msg = f"{path}: has no column doc_id or id, or none of content and body; {_TEXTS_FORM}"
            raise WrongInput(msg)
        return pl.scan_parquet(path).select(key, text).collect(), text == "content"
    except (OSError, pl.exceptions.PolarsError) as error:
        msg = f"{path}: cannot be read as Parquet ({error}); {_TEXTS_FORM}"
        raise WrongInput(msg) from error
