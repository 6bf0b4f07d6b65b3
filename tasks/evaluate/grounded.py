"""Requests with evidence that a language model writes, a file a skill (SkillPager, section 4.1)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import StorageError
from storage.root import Root
from tasks.evaluate.asking import TRIES, ask_until_right, together
from tasks.evaluate.evidence import EvidenceQuery
from tasks.evaluate.grounded_prompt import PROMPT, Grounded, Skill, checked_queries, question_about
from tasks.models.llm_answers import AnswerBook, run_blocking
from tasks.models.llm_errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm_question import Sampling

FOLDER = "queries"
SCHEMA_VERSION = 1

_LEFT = {BudgetSpent: "budget", LlmUnavailable: "unavailable"}


@dataclass(frozen=True, slots=True)
class Written:
    """What is kept of one skill.

    Args:
        skill: As it was when it was asked about.
        model: The model asked.
        queries: The requests that passed every check.
        rejected: Requests of its last answer that did not, by reason.
        failed: Why there are none at all: `rejected`, `refused` or `too-long`; None: there are some.
        detail: The failure in words.
    """

    skill: Skill
    model: str
    queries: tuple[EvidenceQuery, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    failed: str | None = None
    detail: str = ""

    def as_record(self) -> dict[str, Any]:
        """Return it as its file holds it."""
        return {
            "schema_version": SCHEMA_VERSION, "doc_id": self.skill.doc_id, "name": self.skill.name,
            "description": self.skill.description, "body": self.skill.body, "prompt": PROMPT,
            "model": self.model, "queries": [query_line(q) for q in self.queries],
            "rejected": dict(self.rejected), "failed": self.failed, "detail": self.detail,
        }  # fmt: skip


@dataclass(slots=True)
class Growth:
    """What one call did: skills asked about and kept from before, and those left for the next, by reason."""

    asked: int = 0
    kept: int = 0
    unfinished: Counter[str] = field(default_factory=Counter)


def query_line(query: EvidenceQuery) -> dict[str, Any]:
    """Return a request in the form that `read_queries` reads."""
    evidence = [{"any_of": list(item)} for item in query.evidence]
    return {
        "query_id": query.query_id, "doc_id": query.doc_id, "breadth": query.breadth, "query": query.query,
        "evidence": evidence,
    }  # fmt: skip


def document_line(skill: Skill) -> dict[str, str]:
    """Return a skill in the form that `read_documents` reads, name and description as front matter."""
    head = "".join(f"{key}: {_one_line(text)}\n" for key, text in _head(skill))
    return {"doc_id": skill.doc_id, "content": f"---\n{head}---\n{skill.body}"}


def grow(
    skills: Sequence[Skill],
    folder: Root,
    book: AnswerBook,
    *,
    sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Growth:
    """Write five requests about each skill that has no file in the folder yet.

    An answer that fails its checks is asked for again twice, its faults named; of the last one the good
    requests are kept. Each skill's file is written as soon as it is done, so that a rerun goes on from there.

    Args:
        skills: What to ask about; as many at once as the book's endpoint allows.
        folder: Gets `queries/<skill>.json`.
        book: Asks, and keeps the answers.
        sampling: How answers are drawn.
        report: Called with the skills done and their total.

    Raises:
        LlmDenied: The server lets nobody in, or has no such model.
        StorageError: A file cannot be written.
    """
    growth = Growth()
    new = [skill for skill in skills if not folder.exists(_file(skill.doc_id))]
    growth.kept = len(skills) - len(new)
    done = growth.kept

    async def work(skill: Skill) -> None:
        nonlocal done
        try:
            written = await _write(skill, book, sampling)
            folder.write_json(_file(skill.doc_id), written.as_record())
            growth.asked += 1
        except (BudgetSpent, LlmUnavailable) as error:
            growth.unfinished[_LEFT[type(error)]] += 1
        done += 1
        report(done, len(skills))

    async def all_of_them() -> None:
        async with book.opened():
            await together(work(skill) for skill in new)

    if new:
        run_blocking(all_of_them())
    return growth


async def _write(skill: Skill, book: AnswerBook, sampling: Sampling) -> Written:
    """Return what a model wrote about a skill, or why it could not; raises what a later run may mend."""

    def check(attempt: int) -> Callable[[str], Grounded]:
        return checked_queries(skill, strict=attempt < TRIES - 1)

    try:
        found = await ask_until_right(
            book,
            lambda attempt, said: question_about(skill, sampling=sampling, attempt=attempt, complaint=said),
            check,
        )
    except Rejected as rejection:
        return Written(skill, book.model, failed="rejected", detail=rejection.reason)
    except ContextOverflow as error:
        return Written(skill, book.model, failed="too-long", detail=str(error))
    except LlmRefused as error:
        return Written(skill, book.model, failed="refused", detail=str(error))
    return Written(skill, book.model, found.queries, found.rejected)


def read_written(folder: Root) -> list[Written]:
    """Return what the folder keeps of every skill, by doc_id.

    Raises:
        StorageError: A file is damaged; the message names it.
    """
    found = [_read(folder, file) for file in folder.files(FOLDER, ".json")]
    return sorted(found, key=lambda written: written.skill.doc_id)


def _read(folder: Root, file: str) -> Written:
    record = folder.read_json(file) or {}
    try:
        if record["schema_version"] != SCHEMA_VERSION:
            msg = f"{folder.at(file)} has schema version {record['schema_version']}, not {SCHEMA_VERSION}"
            raise StorageError(msg)
        skill = Skill(record["doc_id"], record["name"], record["description"], record["body"])
        queries = tuple(
            EvidenceQuery(
                q["query_id"], q["doc_id"], q["query"], tuple(tuple(i["any_of"]) for i in q["evidence"]),
                q["breadth"],
            )
            for q in record["queries"]
        )  # fmt: skip
        return Written(
            skill, record["model"], queries, record["rejected"], record["failed"], record["detail"]
        )
    except (KeyError, TypeError) as error:
        msg = f"{folder.at(file)} is damaged ({error!r}): delete it, and its skill is asked about again"
        raise StorageError(msg) from error


def _file(doc_id: str) -> str:
    """Return a file name that any system takes, one for each id."""
    digest = hashlib.sha256(doc_id.encode()).hexdigest()[:12]
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9]+', '-', doc_id)[:80].strip('-')}-{digest}.json"


def _head(skill: Skill) -> list[tuple[str, str]]:
    return [("name", skill.name), ("description", skill.description)]


def _one_line(text: str) -> str:
    """Return text as a quoted scalar of YAML."""
    return '"' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'
