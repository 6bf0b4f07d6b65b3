"""The data of routing benches: skills, tasks, the skills that each task needs, and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.root import Root
from storage.schemas import Qrel, RawDocument
from storage.state import documents_table
from tasks.refine.frontmatter.description import description_of
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.frontmatter.name import folder_of, name_of
from tasks.refine.text.boilerplate import strip_boilerplate
from tasks.refine.text.canonical import canonical

SKILLS = pl.Schema({"doc_id": pl.String, "name": pl.String, "description": pl.String, "body": pl.String})
_FORM = "{doc_id, content}"
_PARTS = ("name", "description", "body")


@dataclass(frozen=True, slots=True)
class RoutingQuery:
    """A task; `length` and `distinctive` group tasks where the bench knows them."""

    query_id: str
    text: str
    length: str | None = None
    distinctive: str | None = None


def read_tasks(path: Path) -> list[RoutingQuery]:
    """Return the tasks of a file in order.

    Args:
        path: Lines `{query_id, text}` (or `query` for `text`), and `length` and `distinctive` where known.

    Raises:
        WrongInput: The file cannot be read, a line is no such object, a task is blank or an id occurs twice.
    """
    tasks: dict[str, RoutingQuery] = {}
    for where, record in read_lines(path, "{query_id, text}"):
        query_id = text_field(record, "query_id", where)
        text = text_field(record, "text" if "text" in record else "query", where)
        if query_id in tasks or not text.strip():
            msg = f"{where}: query_id {query_id!r} occurs twice, or its text is blank; mend the line"
            raise WrongInput(msg)
        groups = (
            text_field(record, key, where) if record.get(key) is not None else None
            for key in ("length", "distinctive")
        )
        tasks[query_id] = RoutingQuery(query_id, text, *groups)
    if not tasks:
        msg = f"{path}: holds no tasks; give a file with at least one"
        raise WrongInput(msg)
    return list(tasks.values())


def read_qrels(path: Path) -> list[Qrel]:
    """Return the judgements of a file.

    Args:
        path: Lines `{query_id, doc_id, relevance}`; without relevance it is 1.

    Raises:
        WrongInput: The file cannot be read, or a line is no such object.
    """
    found = []
    for where, record in read_lines(path, "{query_id, doc_id, relevance}"):
        relevance = record.get("relevance", 1)
        if not isinstance(relevance, int) or isinstance(relevance, bool):
            msg = f"{where}: `relevance` is {relevance!r}, a whole number is wanted"
            raise WrongInput(msg)
        query_id, doc_id = (text_field(record, key, where) for key in ("query_id", "doc_id"))
        found.append(Qrel(query_id, doc_id, relevance))
    return found


def read_copies(path: Path | None) -> dict[str, str]:
    """Return the skill that each copy is a copy of; no file, no copies.

    Args:
        path: Lines `{copy_id, doc_id}`.

    Raises:
        WrongInput: The file cannot be read, a line is no such object, or a copy has two originals.
    """
    copies: dict[str, str] = {}
    for where, record in read_lines(path, "{copy_id, doc_id}") if path else ():
        copy_id, doc_id = (text_field(record, key, where) for key in ("copy_id", "doc_id"))
        if copies.setdefault(copy_id, doc_id) != doc_id:
            msg = f"{where}: {copy_id!r} is a copy of {copies[copy_id]!r} in an earlier line; keep one"
            raise WrongInput(msg)
    return copies


def read_skills(
    paths: Iterable[Path], progress: Callable[[int, int], None] = lambda _done, _total: None
) -> pl.DataFrame:
    """Return the skills of several corpora by the columns of `SKILLS`; of an id in two the first is taken.

    Args:
        paths: Each a root (its current documents), a Parquet file, or JSON lines; the files have doc_id (or
            id), and either content, a whole SKILL.md, or name, description and body.
        progress: Called with the files taken apart and their total.

    Raises:
        WrongInput: A path is none of these, or there are no skills at all.
    """
    given = list(paths)
    parts = [_of_path(path, progress) for path in given]
    skills = pl.concat([SKILLS.to_frame(), *parts]).unique("doc_id", keep="first", maintain_order=True)
    if skills.is_empty():
        msg = f"{', '.join(map(str, given))}: hold no skills; give a corpus with at least one"
        raise WrongInput(msg)
    return skills


def skill_of(doc_id: str, content: str, path: str | None = None) -> tuple[str, str, str, str]:
    """Return a SKILL.md's doc_id, name, description and body as refining would have them, unredacted."""
    text, _ = canonical(content)
    front = parse_frontmatter(text)
    stripped, _ = strip_boilerplate(front.body, "body")
    body, _ = canonical(stripped)
    folder = folder_of(RawDocument(doc_id, "", None, 0, "", path=path))
    name, _, _ = name_of(front.fields.get("name"), folder)
    description, _, _ = description_of(front.fields.get("description"), body)
    return doc_id, name, description, body


def require_judged(
    tasks: Iterable[RoutingQuery], qrels: Iterable[Qrel], skills: pl.DataFrame, copies: Mapping[str, str]
) -> None:
    """Raise `WrongInput` if a task lacks a relevant skill, one is not in the corpus, or a copy has copies."""
    known = set(skills["doc_id"])
    relevant: dict[str, list[str]] = {}
    for query_id, doc_id, relevance in qrels:
        if relevance > 0:
            relevant.setdefault(query_id, []).append(doc_id)
    for task in tasks:
        wanted = relevant.get(task.query_id, [])
        if not wanted or (missing := [d for d in wanted if d not in known]):
            what = f"the skill {missing[0]!r}, which no corpus given has" if wanted else "no relevant skill"
            msg = f"query {task.query_id!r} has {what}: add --documents, mend the qrels or drop the query"
            raise WrongInput(msg)
    if twice := sorted(set(copies) & set(copies.values())):
        msg = f"{twice[0]!r} is both a copy and an original: name the first original of each copy"
        raise WrongInput(msg)


def _of_path(path: Path, progress: Callable[[int, int], None]) -> pl.DataFrame:
    if path.is_dir():
        root = Root(path)
        if not root.exists("documents"):
            msg = f"{path}: no root, it has no documents/; give a root, a Parquet file or JSON lines {_FORM}"
            raise WrongInput(msg)
        return documents_table(root).read(columns=list(SKILLS)).select(*SKILLS)
    return _of_parquet(path, progress) if path.suffix == ".parquet" else _of_lines(path)


def _of_parquet(path: Path, progress: Callable[[int, int], None]) -> pl.DataFrame:
    try:
        columns = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        msg = f"{path}: cannot be read as Parquet ({error})"
        raise WrongInput(msg) from error
    key = next((name for name in ("doc_id", "id") if name in columns), None)
    whole = set(_PARTS) <= set(columns)
    if key is None or not (whole or "content" in columns):
        msg = (
            f"{path}: wanted are doc_id or id, and content or {', '.join(_PARTS)}; found {', '.join(columns)}"
        )
        raise WrongInput(msg)
    if whole:
        rows = pl.read_parquet(path, columns=[key, *_PARTS]).rename({key: "doc_id"})
        return rows.drop_nulls().select(pl.col(*SKILLS).cast(pl.String))
    places = [pl.col("path") if "path" in columns else pl.lit(None, dtype=pl.String).alias("path")]
    rows = pl.read_parquet(path).select(pl.col(key).cast(pl.String), "content", *places).drop_nulls("content")
    found = []
    for doc_id, content, place in rows.iter_rows():
        found.append(skill_of(doc_id, content, place))
        progress(len(found), rows.height)
    return pl.DataFrame(found, schema=SKILLS, orient="row")


def _of_lines(path: Path) -> pl.DataFrame:
    found = []
    for where, record in read_lines(path, _FORM):
        doc_id = text_field(record, "doc_id" if "doc_id" in record else "id", where)
        if "content" in record:
            found.append(skill_of(doc_id, text_field(record, "content", where)))
        else:
            name, description, body = (text_field(record, part, where) for part in _PARTS)
            found.append((doc_id, name, description, body))
    return pl.DataFrame(found, schema=SKILLS, orient="row")
