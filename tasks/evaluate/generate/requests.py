"""Requests with evidence that a language model writes about skills (SkillPager, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.root import Root
from tasks.evaluate.generate.requests_prompt import PROMPT, CheckedRequests, checked_requests, question_about
from tasks.evaluate.generate.skill_files import Failure, Growth, SkillFiles
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.question import Sampling
from tasks.retrieve.routing.skill import Skill

FOLDER = "queries"


@dataclass(frozen=True, slots=True)
class SkillRequests:
    """The requests about one skill, and the answer they come from."""

    skill: Skill  # as it was when the model was asked
    model: str  # the model asked
    queries: tuple[EvidenceQuery, ...] = ()  # the requests that passed every check
    # Requests of the last answer that did not, by reason.
    rejected: Mapping[str, int] = field(default_factory=dict)
    failed: str | None = None  # why there are none: `rejected`, `refused` or `too-long`; None: there are some
    detail: str = ""  # the failure in words


def query_line(query: EvidenceQuery) -> dict[str, Any]:
    """Return a request in the form that `read_queries` reads."""
    evidence = [{"any_of": list(item)} for item in query.evidence]
    return {
        "query_id": query.query_id, "doc_id": query.doc_id, "breadth": query.breadth, "query": query.query,
        "evidence": evidence,
    }  # fmt: skip


def document_line(skill: Skill) -> dict[str, str]:
    """Return a skill in the form that `read_documents` reads, name and description as front matter."""
    fields = {"name": skill.name, "description": skill.description}
    head = "".join(f"{key}: {_yaml_scalar(text)}\n" for key, text in fields.items())
    return {"doc_id": skill.doc_id, "content": f"---\n{head}---\n{skill.body}"}


def _yaml_scalar(text: str) -> str:
    return '"' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_requests(
    skills: Sequence[Skill],
    folder: Root,
    book: AnswerCache,
    *,
    sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Growth:
    """Write five requests about each skill that has no file `queries/<skill>.json` in the folder yet.

    Arguments and errors as `SkillFiles.grow`; `sampling` is how answers are drawn.
    """

    def record(skill: Skill, found: CheckedRequests | Failure) -> dict[str, Any]:
        failure = found if isinstance(found, Failure) else None
        checked = CheckedRequests(()) if isinstance(found, Failure) else found
        return {
            **skill._asdict(), "prompt": PROMPT, "queries": [query_line(q) for q in checked.queries],
            "rejected": dict(checked.rejected), "failed": failure and failure.failed,
            "detail": failure.detail if failure else "",
        }  # fmt: skip

    return SkillFiles(folder, FOLDER).grow(
        skills,
        book,
        question=lambda skill, attempt, complaint: question_about(
            skill, sampling=sampling, attempt=attempt, complaint=complaint
        ),
        check=lambda skill, strict: checked_requests(skill, strict=strict),
        record=record,
        report=report,
    )


def read_requests(folder: Root) -> list[SkillRequests]:
    """Return what the folder keeps of every skill, by doc_id; raise `StorageError` for a damaged file."""
    return sorted(SkillFiles(folder, FOLDER).read(_of_record), key=lambda kept: kept.skill.doc_id)


def _of_record(record: dict[str, Any]) -> SkillRequests:
    skill = Skill(record["doc_id"], record["name"], record["description"], record["body"])
    queries = tuple(
        EvidenceQuery(
            q["query_id"], q["doc_id"], q["query"], tuple(tuple(i["any_of"]) for i in q["evidence"]),
            q["breadth"],
        )
        for q in record["queries"]
    )  # fmt: skip
    return SkillRequests(
        skill, record["model"], queries, record["rejected"], record["failed"], record["detail"]
    )
