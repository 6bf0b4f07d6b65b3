"""Requests with evidence that a language model writes, a file a skill (SkillPager, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.root import Root
from tasks.evaluate.generate.requests_prompt import PROMPT, Grounded, checked_queries, question_about
from tasks.evaluate.generate.skill_files import Failure, Growth, SkillFiles, answer_or_failure
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.models.llm.answer_cache import AnswerBook
from tasks.models.llm.asking import TRIES, ask_until_right
from tasks.models.llm.question import Sampling
from tasks.retrieve.routing.skill import Skill

FOLDER = "queries"


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
        """Return what its file holds beside the model."""
        return {
            **self.skill._asdict(), "prompt": PROMPT, "queries": [query_line(q) for q in self.queries],
            "rejected": dict(self.rejected), "failed": self.failed, "detail": self.detail,
        }  # fmt: skip


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

    async def write(skill: Skill) -> dict[str, Any]:
        return (await _write(skill, book, sampling)).as_record()

    return SkillFiles(folder, FOLDER).grow(skills, book, write, report)


async def _write(skill: Skill, book: AnswerBook, sampling: Sampling) -> Written:
    """Return what a model wrote about a skill, or why it could not; raises what a later run may mend."""

    def check(attempt: int) -> Callable[[str], Grounded]:
        return checked_queries(skill, strict=attempt < TRIES - 1)

    found = await answer_or_failure(
        ask_until_right(
            book,
            lambda attempt, said: question_about(skill, sampling=sampling, attempt=attempt, complaint=said),
            check,
        )
    )
    if isinstance(found, Failure):
        return Written(skill, book.model, failed=found.failed, detail=found.detail)
    return Written(skill, book.model, found.queries, found.rejected)


def read_written(folder: Root) -> list[Written]:
    """Return what the folder keeps of every skill, by doc_id.

    Raises:
        StorageError: A file is damaged; the message names it.
    """
    return sorted(SkillFiles(folder, FOLDER).read(_of_record), key=lambda written: written.skill.doc_id)


def _of_record(record: dict[str, Any]) -> Written:
    skill = Skill(record["doc_id"], record["name"], record["description"], record["body"])
    queries = tuple(
        EvidenceQuery(
            q["query_id"], q["doc_id"], q["query"], tuple(tuple(i["any_of"]) for i in q["evidence"]),
            q["breadth"],
        )
        for q in record["queries"]
    )  # fmt: skip
    return Written(skill, record["model"], queries, record["rejected"], record["failed"], record["detail"])


def _head(skill: Skill) -> list[tuple[str, str]]:
    return [("name", skill.name), ("description", skill.description)]


def _one_line(text: str) -> str:
    """Return text as a quoted scalar of YAML."""
    return '"' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'
