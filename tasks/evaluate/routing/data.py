"""The data of routing benches: skills, tasks, the skills each task needs, copies, and pools of skills."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.schemas import Qrel
from tasks.evaluate.corpus.read import scan_corpus
from tasks.evaluate.routing.measures import DEPTH
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.frontmatter.skill_text import description_of, folder_of, name_of
from tasks.refine.text.canonical import canonical, strip_boilerplate
from tasks.retrieve.routing.skill import Skill

SKILLS = pl.Schema({"doc_id": pl.String, "name": pl.String, "description": pl.String, "body": pl.String})
_FORM = "{doc_id, content}"
_PARTS = ("name", "description", "body")
_KNOWN = ("length", "distinctive", "repo", "not_doc_id")


@dataclass(frozen=True, slots=True)
class RoutingQuery:
    """A task; `length`, `distinctive` and `repo` group tasks where the bench knows them.

    `repo` is the repository whose skills the task is about, `not_doc_id` a skill that the task is not for.
    """

    query_id: str
    text: str
    length: str | None = None
    distinctive: str | None = None
    repo: str | None = None
    not_doc_id: str | None = None


@dataclass(frozen=True, slots=True)
class RoutingBench:
    """Tasks, their relevant skills, the original of each copy, and tasks that no skill serves."""

    tasks: Sequence[RoutingQuery]
    qrels: Sequence[Qrel]
    copies: Mapping[str, str] = field(default_factory=dict)
    negatives: Sequence[RoutingQuery] = ()

    @property
    def depth(self) -> int:
        """How many skills a method is asked for, so that `DEPTH` are left when copies are folded."""
        return DEPTH + len(self.copies)


def read_tasks(path: Path) -> list[RoutingQuery]:
    """Return the tasks of a file in order: lines `{query_id, text or query}`, and what groups it.

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
        groups = (text_field(record, key, where) if record.get(key) is not None else None for key in _KNOWN)
        tasks[query_id] = RoutingQuery(query_id, text, *groups)
    if not tasks:
        raise WrongInput(f"{path}: holds no tasks; give a file with at least one")
    return list(tasks.values())


def read_qrels(path: Path) -> list[Qrel]:
    """Return the judgements of a file of lines `{query_id, doc_id, relevance}`; without relevance it is 1.

    Raises:
        WrongInput: The file cannot be read, or a line is no such object.
    """
    found = []
    for where, record in read_lines(path, "{query_id, doc_id, relevance}"):
        relevance = record.get("relevance", 1)
        if not isinstance(relevance, int) or isinstance(relevance, bool):
            raise WrongInput(f"{where}: `relevance` is {relevance!r}, a whole number is wanted")
        query_id, doc_id = (text_field(record, key, where) for key in ("query_id", "doc_id"))
        found.append(Qrel(query_id, doc_id, relevance))
    return found


def read_copies(path: Path | None) -> dict[str, str]:
    """Return the original of each copy, from lines `{copy_id, doc_id}`; no file, no copies.

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


def best_skills(
    tasks: Iterable[RoutingQuery], qrels: Iterable[Qrel], skills: pl.DataFrame
) -> list[tuple[RoutingQuery, Skill]]:
    """Return the tasks, in order, each with the skill that serves it best; of equal ones the first judged.

    `skills` has the columns of `SKILLS`. Tasks whose skill is not among them are left out.
    """
    best: dict[str, Qrel] = {}
    for qrel in qrels:
        if qrel.relevance > best.get(qrel.query_id, Qrel("", "", 0)).relevance:
            best[qrel.query_id] = qrel
    wanted = skills.filter(pl.col("doc_id").is_in({qrel.doc_id for qrel in best.values()}))
    by_id = {row[0]: Skill(*row) for row in wanted.select(Skill._fields).iter_rows()}
    pairs = ((task, best[task.query_id].doc_id) for task in tasks if task.query_id in best)
    return [(task, by_id[doc_id]) for task, doc_id in pairs if doc_id in by_id]


def read_skills(
    paths: Iterable[Path], progress: Callable[[int, int], None] = lambda _done, _total: None
) -> pl.DataFrame:
    """Return the skills of several corpora by the columns of `SKILLS`; of an id in two the first is taken.

    `paths` are as `scan_corpus` takes them, with content (a whole SKILL.md) or name, description and body;
    `progress` is called with the files taken apart and their total. Raises `WrongInput` if a path is no
    corpus, or there are no skills at all.
    """
    given = list(paths)
    parts = [part for path in given for part in _skills_of(path, progress)]
    skills = pl.concat([SKILLS.to_frame(), *parts]).unique("doc_id", keep="first", maintain_order=True)
    if skills.is_empty():
        raise WrongInput(f"{', '.join(map(str, given))}: hold no skills; give a corpus with at least one")
    return skills


def _skills_of(path: Path, progress: Callable[[int, int], None]) -> Iterator[pl.DataFrame]:
    has_text = pl.col("content").is_not_null() | pl.all_horizontal(pl.col(_PARTS).is_not_null())
    for frame in scan_corpus(path, (_PARTS, ("content",)), optional=("path",), form=_FORM):
        found, rows = [], frame.filter(has_text).collect()
        # Rows stay in the corpus's order: equal scores are ranked by position.
        for number, (doc_id, *parts, content, place) in enumerate(rows.iter_rows(), start=1):
            if content is None:
                found.append((doc_id, *map(str, parts)))
            else:
                found.append(skill_of(doc_id, content, place))
                progress(number, rows.height)
        yield pl.DataFrame(found, SKILLS, orient="row")


def skill_of(doc_id: str, content: str, path: str | None = None) -> tuple[str, str, str, str]:
    """Return a SKILL.md's doc_id, name, description and body as refining would have them, unredacted."""
    text, _ = canonical(content)
    front = parse_frontmatter(text)
    stripped, _ = strip_boilerplate(front.body, "body")
    body, _ = canonical(stripped)
    name, _, _ = name_of(front.fields.get("name"), folder_of(doc_id, path))
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
        raise WrongInput(f"{twice[0]!r} is both a copy and an original: name the first original of each copy")


POOL_NAMES = MappingProxyType({
    "all": "all that are given",
    "bench": "the bench's own alone",
    "repository": "those of a task's repository alone",
    "easy": "all but the distractors",
    "hard": "all, the distractors among them",
    "average": "the mean of easy and hard, task by task",
})  # fmt: skip
POOLS = tuple(POOL_NAMES)[:-1]


class PoolPart(NamedTuple):
    """A bench, and the skills among which its tasks are routed."""

    bench: RoutingBench
    skills: pl.DataFrame


def parts_of(
    pool: str, bench: RoutingBench, skills: pl.DataFrame, own: Collection[str],
    distractors: Collection[str] = (),
) -> list[PoolPart]:  # fmt: skip
    """Return the parts of one of `POOLS`: one, or for `repository` one for each repository.

    `own` are the ids of the skills that the bench comes with, `distractors` those that are in the pool `hard`
    alone of `easy` and `hard`. The ids of a repository's skills begin with its name.

    Raises:
        WrongInput: A task's repository is not known, or one has no skills or lacks a skill that a task needs.
    """
    if pool in ("all", "hard"):
        return [PoolPart(bench, skills)]
    if pool == "easy":
        return [PoolPart(bench, skills.filter(~pl.col("doc_id").is_in(list(distractors))))]
    if pool == "bench":
        return [PoolPart(bench, skills.filter(pl.col("doc_id").is_in(list(own))))]
    return [_of_repository(repo, bench, skills) for repo in _repositories(bench)]


def _repositories(bench: RoutingBench) -> Sequence[str]:
    """Return the repositories of a bench's tasks and negatives, in order."""
    asked = (*bench.tasks, *bench.negatives)
    for task in asked:
        if task.repo is None:
            msg = f"query {task.query_id!r} names no `repo`: add it, or leave --pool repository out"
            raise WrongInput(msg)
    return list(dict.fromkeys(str(task.repo) for task in asked))


def id_starts(repo: str) -> tuple[str, str]:
    """Return what the ids of a repository's skills begin with, in lower case: they have one of two forms."""
    return f"{repo.lower()}/", "--".join(repo.lower().split("/")) + "--"


def _of_repository(repo: str, bench: RoutingBench, skills: pl.DataFrame) -> PoolPart:
    ids = pl.col("doc_id").str.to_lowercase()
    inside = skills.filter(pl.any_horizontal(ids.str.starts_with(start) for start in id_starts(repo)))
    tasks = [task for task in bench.tasks if task.repo == repo]
    asked, known = {task.query_id for task in tasks}, set(inside["doc_id"])
    qrels = [qrel for qrel in bench.qrels if qrel.query_id in asked]
    for query_id, doc_id, relevance in qrels:
        if relevance > 0 and doc_id not in known:
            msg = f"query {query_id!r} needs {doc_id!r}, which is not in its `repo` {repo!r}: mend either"
            raise WrongInput(msg)
    if inside.is_empty():
        msg = f"no id of a skill begins with the `repo` {repo!r}: mend it, or leave --pool repository out"
        raise WrongInput(msg)
    negatives = [task for task in bench.negatives if task.repo == repo]
    return PoolPart(replace(bench, tasks=tasks, qrels=qrels, negatives=negatives), inside)
