"""Reads a corpus of skills from where it lies: a root, a Parquet file or JSON lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.partitions import PARTITIONS
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table
from tasks.refine.structure import QUALITY, quality_frame
from tasks.refine.text.canonical import canonical, strip_boilerplate

_FORM = "{doc_id, content or body}"
_TEXTS_FORM = "give a root, or a Parquet file with doc_id or id, and content or body"
_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
Columns = Sequence[str]


def scan_corpus(
    path: Path, texts: Sequence[Columns], *, optional: Columns = (), may_lack_text: bool = False,
    form: str = _FORM,
) -> Iterator[pl.LazyFrame]:  # fmt: skip
    """Yield the rows of a corpus: `doc_id`, the columns of all alternatives, and the optional ones.

    Args:
        path: A root (its current documents, a frame a partition), a Parquet file or JSON lines. Both kinds of
            file name a skill by doc_id or id.
        texts: Alternative columns for the text. The first that the corpus, or the JSON object, has in full is
            read; the others are null.
        optional: `files`, `category`, `kind`, `path`, `repo` or `owner`; null where they are not known.
        may_lack_text: Whether a JSON object may have null for a text, as an export's may.
        form: The JSON object that errors ask for.

    Raises:
        WrongInput: The path is none of these, a column is missing, or a line is no such object.
    """
    if path.is_dir():
        root = Root(path)
        if not root.exists("documents"):
            msg = f"{path}: no root, it has no documents/; give a root, a Parquet file or JSON lines {form}"
            raise WrongInput(msg)
        columns = _columns("doc_id", DOCUMENTS, texts, optional)
        held = [name for name in ("doc_id", *chain(*texts), *optional) if name in DOCUMENTS]
        # One partition at a time: all bodies of a large root do not fit into memory.
        for part in range(PARTITIONS):
            yield documents_table(root).read([part], held).lazy().select(columns)
    elif _is_parquet(path):
        yield _scan_parquet(path, texts, optional)
    else:
        rows = [_row(*line, texts, optional, may_lack_text) for line in read_lines(path, form)]
        names = ("doc_id", *chain(*texts), *optional)
        yield pl.LazyFrame(rows, {name: DOCUMENTS.get(name, pl.String) for name in names})


def _columns(key: str, held: Collection[str], texts: Sequence[Columns], optional: Columns) -> list[pl.Expr]:
    taken = {*next(text for text in texts if set(text) <= set(held)), *(o for o in optional if o in held)}
    nothing = {name: pl.lit(None, DOCUMENTS.get(name, pl.String)) for name in (*chain(*texts), *optional)}
    found = [pl.col(name) if name in taken else null.alias(name) for name, null in nothing.items()]
    return [pl.col(key).cast(pl.String).alias("doc_id"), *found]


def _is_parquet(path: Path) -> bool:
    if path.suffix == ".parquet" or not path.is_file():
        # A pipe can be read once: nothing is looked up in it.
        return path.suffix == ".parquet"
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"PAR1"
    return False


def _scan_parquet(path: Path, texts: Sequence[Columns], optional: Columns) -> pl.LazyFrame:
    try:
        held = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise WrongInput(f"{path}: cannot be read as Parquet ({error})") from error
    key = next((name for name in ("doc_id", "id") if name in held), None)
    if key is None or not any(set(text) <= set(held) for text in texts):
        wanted = " and ".join(", ".join(text) for text in reversed(texts))
        raise WrongInput(f"{path}: has no column doc_id or id, or none of {wanted}; found {', '.join(held)}")
    return pl.scan_parquet(path).select(_columns(key, held, texts, optional))


def _row(
    where: str, record: dict[str, Any], texts: Sequence[Columns], optional: Columns, may_lack_text: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {"doc_id": text_field(record, "doc_id" if "doc_id" in record else "id", where)}
    for name in next((text for text in texts if set(text) <= set(record)), texts[-1]):
        lacks = may_lack_text and name in record and record[name] is None
        row[name] = None if lacks else text_field(record, name, where)
    category = record.get("category")
    known = {"category": category if isinstance(category, str) else None}
    return row | {name: _files(record, where) if name == "files" else known.get(name) for name in optional}


def _files(record: dict[str, Any], where: str) -> list[dict[str, Any]] | None:
    given = record.get("files")
    if given is None:
        return None
    if isinstance(given, list) and all(isinstance(f, dict) and isinstance(f.get("path"), str) for f in given):
        return [{"path": file["path"], "size": None, "sha256": None} for file in given]
    msg = f"{where}: `files` is no list of objects {{path, ...}}; leave it out where the bundle is unknown"
    raise WrongInput(msg)


@dataclass(frozen=True, slots=True)
class Corpus:
    """The measures of a corpus's documents (`tasks.refine.structure.QUALITY`), and how many have no text.

    An export keeps back the text of some licences: such documents are counted, not measured.
    """

    measures: pl.DataFrame
    without_text: int


def load_corpus(spec: str) -> Corpus:
    """Return the quality measures of a corpus's documents, and how many have no text to measure.

    Args:
        spec: A root (its current documents), an export's folder, a Parquet file or JSON lines with doc_id or
            id, and body or content (a whole SKILL.md, whose bundle is unknown).

    Raises:
        WrongInput: `spec` is none of these, or holds no document with text.
    """
    path = Path(spec).expanduser()
    if not path.exists():
        raise WrongInput(f"{spec}: not found; give a root, a Parquet file or JSON lines {_FORM}")
    texts, measures, without_text = pl.coalesce("body", "content"), [QUALITY.to_frame()], 0
    bodies = pl.coalesce("body", pl.col("content").map_elements(_body_of, pl.String)).alias("body")
    files = pl.when(pl.col("content").is_null()).then("files").alias("files")
    for frame in _frames(path):
        without_text += frame.select(texts.null_count()).collect(engine="streaming").item()
        measures.append(quality_frame(frame.filter(texts.is_not_null()).select("doc_id", bodies, files)))
    found = Corpus(pl.concat(measures), without_text)
    if found.measures.is_empty():
        withheld = f" with text ({without_text} without)" if without_text else ""
        raise WrongInput(f"{spec}: holds no documents{withheld}")
    return found


def _frames(path: Path) -> Iterator[pl.LazyFrame]:
    """Yield doc_id, body, content and files of a corpus or of an export's folder, of any format."""
    if path.is_dir() and not (path / "documents").is_dir():
        exported = [path / f"documents.{form}" for form in ("parquet", "jsonl")]
        if (path / "skills").is_dir():
            skills = sorted((path / "skills").rglob("SKILL.md"))
            rows = [(file.parent.relative_to(path).as_posix(), file.read_text("utf-8")) for file in skills]
            known = {name: DOCUMENTS[name] for name in ("body", "files")}
            whole = pl.LazyFrame(rows, {"doc_id": pl.String, "content": pl.String}, orient="row")
            yield whole.with_columns(pl.lit(None, kind).alias(name) for name, kind in known.items())
            return
        if (path_of := next((file for file in exported if file.is_file()), None)) is None:
            raise WrongInput(f"{path}: no root and no export; give one, a Parquet file or JSON lines {_FORM}")
        path = path_of
    yield from scan_corpus(path, (("body",), ("content",)), optional=("files",), may_lack_text=True)


def _body_of(content: str) -> str:
    """Return what stands below the front matter, canonical and without aggregators' additions."""
    text, _ = canonical(content)
    body, _ = strip_boilerplate(_FRONT_MATTER.sub("", text, count=1), "body")
    return canonical(body)[0]


def read_categories(paths: Iterable[Path]) -> dict[str, str]:
    """Return the category of each skill that has one, by doc_id; the first corpus wins.

    Raises:
        WrongInput: A path is no corpus as `scan_corpus` takes it.
    """
    category = pl.col("category").cast(pl.String).str.strip_chars()
    found: dict[str, str] = {}
    for frame in (frame for path in paths for frame in scan_corpus(path, [()], optional=("category",))):
        rows = frame.select("doc_id", category).filter(pl.col("category") != "")
        found = dict(rows.collect().reverse().iter_rows()) | found
    return found


def corpus_texts(spec: str) -> dict[str, str]:
    """Return the text of every skill of a corpus by its id, as `paging.bench.prepare_all` reads it.

    `spec` is as for `scan_corpus`; rows without text are left out.

    Raises:
        WrongInput: `spec` is no corpus, or holds no text.
    """
    path = Path(spec).expanduser()
    if not path.exists():
        raise WrongInput(f"{spec}: not found; {_TEXTS_FORM}")
    # A file's rows are skills, whatever they are called there.
    is_skill = pl.col("kind") == "skill" if path.is_dir() else pl.lit(True)
    # An empty front matter keeps the first lines of a body from being taken for one.
    text = pl.coalesce("content", pl.lit("---\nname: skill\n---\n") + pl.col("body"))
    texts: dict[str, str] = {}
    for frame in scan_corpus(path, (("content",), ("body",)), optional=("kind",), may_lack_text=True):
        texts |= dict(frame.filter(is_skill).select("doc_id", text).drop_nulls().collect().iter_rows())
    if not texts:
        raise WrongInput(f"{spec}: holds no text of a skill; {_TEXTS_FORM}")
    return texts
