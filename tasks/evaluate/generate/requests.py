"""Requests with evidence that a language model writes about skills (SkillPager, section 4.1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ValidationInfo

from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.corpus.skill_sample import namespace_of
from tasks.evaluate.generate.skill_files import Kept, SkillFiles, entries_of
from tasks.evaluate.measures.evidence import EvidenceQuery, Item, fold_text, spans_in
from tasks.models.llm.ask import Llm, Report
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Values, is_last, known_of
from tasks.models.llm.quoting import shortened
from tasks.retrieve.routing.skill import Skill

FOLDER = "queries"
# Requests a skill by breadth: five, as in SkillPager, section 4.1.
WANTED = {"narrow": 2, "medium": 2, "broad": 1}
_ITEMS = {"narrow": (1, 3), "medium": (2, 6), "broad": (4, 12)}
_SPAN = (8, 400)  # characters of a passage
_QUERY = 800  # characters of a request at most
BODY = 60_000  # characters of a skill that are sent
_TELLING_WORDS = 6  # a passage of so many words that stands in its own request gives the answer away
_SHOWN = 6  # problems named to the model
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair is no text, and no file could hold it


@dataclass(frozen=True, slots=True)
class CheckedRequests:
    """The requests of an answer that passed, and of those that did not how many by reason."""

    queries: tuple[EvidenceQuery, ...]
    rejected: Mapping[str, int] = field(default_factory=dict)


class _Problem(Exception):
    """What is wrong with one request: a code that is counted, and words for the model."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


class _Evidence(Answer):
    any_of: list[str]


class _Request(Answer):
    breadth: Literal["narrow", "medium", "broad"]
    query: str
    evidence: list[_Evidence]


class _RequestsForm(Answer):
    queries: list[_Request]


def _checked(value: object, info: ValidationInfo) -> CheckedRequests:
    """Return the good requests of an answer about a skill, which is known; at least one.

    Every passage must be a verbatim part of the body; one that differs only in case, white space or
    punctuation is put right. Query ids are `<doc_id>#<number>`, from 1. Of the last answer bad requests are
    counted by reason: `malformed`, `breadth`, `query`, `evidence`, `ungrounded`, `telling`, `double` or
    `missing`; any other answer is rejected by one bad request.
    """
    skill: Skill = known_of(info)
    good: list[EvidenceQuery] = []
    problems: list[_Problem] = []
    for number, entry in enumerate(entries := entries_of(value, "queries"), start=1):
        try:
            good.append(_query(skill, f"{skill.doc_id}#{number}", entry, good))
        except _Problem as problem:
            problems.append(_Problem(problem.code, f"request {number}: {problem}"))
    lacking = sum(WANTED.values()) - len(entries)
    if lacking > 0:
        said = f"{len(entries)} requests instead of {sum(WANTED.values())}"
        problems += [_Problem("missing", said)] * lacking
    if problems and not (is_last(info) and good):
        raise Rejected("; ".join(list(dict.fromkeys(map(str, problems)))[:_SHOWN]))
    return CheckedRequests(tuple(good), Counter(p.code for p in problems))


PROMPT: Prompt[CheckedRequests] = Prompt(
    "queries-1",
    "tasks.evaluate/queries_prompt.txt",
    Annotated[Any, BeforeValidator(_checked)],
    form=_RequestsForm,
)


def _query(skill: Skill, query_id: str, entry: object, before: list[EvidenceQuery]) -> EvidenceQuery:
    if not isinstance(entry, dict):
        raise _Problem("malformed", "it is no object with breadth, query and evidence")
    breadth, query = entry.get("breadth"), entry.get("query")
    if breadth not in WANTED:
        raise _Problem("breadth", f"its breadth is {str(breadth)[:40]!r}, not one of {', '.join(WANTED)}")
    if sum(q.breadth == breadth for q in before) == WANTED[breadth]:
        raise _Problem("breadth", f"there are more than {WANTED[breadth]} {breadth} requests")
    if not isinstance(query, str) or not 0 < len(query.strip()) <= _QUERY or _SURROGATE.search(query):
        raise _Problem("query", f"its query is no text of 1 to {_QUERY} characters")
    if fold_text(query) in {fold_text(q.query) for q in before}:
        raise _Problem("double", "it asks the same as another")
    evidence = _evidence(skill, entry.get("evidence"), breadth)
    _require_untold(query, evidence)
    return EvidenceQuery(query_id, skill.doc_id, query.strip(), evidence, breadth)


def _evidence(skill: Skill, given: object, breadth: str) -> tuple[Item, ...]:
    low, high = _ITEMS[breadth]
    if not isinstance(given, list) or not low <= len(given) <= high:
        found = len(given) if isinstance(given, list) else "no list of"
        raise _Problem("evidence", f"{found} pieces of evidence; {breadth} needs {low} to {high}")
    return tuple(_item(skill, item) for item in given)


def _item(skill: Skill, given: object) -> Item:
    spans = given.get("any_of") if isinstance(given, dict) else given
    spans = [spans] if isinstance(spans, str) else spans
    if not isinstance(spans, list) or not spans or not all(isinstance(span, str) for span in spans):
        raise _Problem("malformed", "a piece of evidence is no object with a list any_of of texts")
    return tuple(dict.fromkeys(_span(skill.body, span) for span in spans))


def _span(body: str, span: str) -> str:
    shown, (least, most) = repr(span[:80]), _SPAN
    if not least <= len(span.strip()) <= most or len(fold_text(span)) < least:
        raise _Problem("evidence", f"the passage {shown} is not of {least} to {most} characters")
    if span in body:
        return span
    places = spans_in(body, span)
    if not places:
        raise _Problem("ungrounded", f"the passage {shown} does not stand in the guide's body")
    start, end = places[0]
    return body[start:end]


def _require_untold(query: str, evidence: tuple[Item, ...]) -> None:
    folded = fold_text(query)
    for span in (s for item in evidence for s in item):
        if fold_text(span).count(" ") + 1 >= _TELLING_WORDS and fold_text(span) in folded:
            raise _Problem("telling", f"its query quotes its own evidence {span[:80]!r}")


class _KeptRequest(BaseModel):
    query_id: str
    doc_id: str
    breadth: str
    query: str
    evidence: list[dict[str, list[str]]]


class _KeptRequests(Kept):
    name: str
    description: str
    body: str
    queries: list[_KeptRequest]
    rejected: dict[str, int]


def query_line(query: EvidenceQuery) -> dict[str, Any]:
    """Return a request in the form that `read_queries` reads."""
    evidence = [{"any_of": list(item)} for item in query.evidence]
    return {
        "query_id": query.query_id, "doc_id": query.doc_id, "breadth": query.breadth, "query": query.query,
        "evidence": evidence,
    }  # fmt: skip


def document_line(skill: Mapping[str, Any]) -> dict[str, str]:
    """Return a skill in the form that `read_documents` reads, name and description as front matter."""
    texts = {key: " ".join(skill[key].split()) for key in ("name", "description")}
    quoted = {key: text.replace("\\", "\\\\").replace('"', '\\"') for key, text in texts.items()}
    head = "".join(f'{key}: "{text}"\n' for key, text in quoted.items())
    return {"doc_id": skill["doc_id"], "content": f"---\n{head}---\n{skill['body']}"}


def values_of(skill: Skill, longest: int = BODY) -> Values:
    """Return what is asked for five requests about a skill; of a longer body the two ends, 0: all."""
    body = shortened(skill.body, longest or len(skill.body))
    record = {"name": skill.name, "description": skill.description, "body": body}
    return Values("Write the five requests about this guide.", [record], (skill.doc_id,), known=skill)


def write_requests(
    skills: Sequence[Skill], folder: Root, llm: Llm, report: Report | None = None, *, longest: int = BODY,
    exactly: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Write five requests about each skill that has no file `queries/<skill>.json` in the folder yet.

    From the files of all skills `documents.jsonl` and `queries.jsonl` are made; `exactly`: of those with five
    good requests. `longest` is as `values_of` takes it, other arguments and errors are those of
    `SkillFiles.grow`. The answer has `skills`, `queries`, `documents`, `by_breadth`, `namespaces` and
    `rejected` (requests by reason), `failed` (skills by reason) of the whole folder; `asked`, `kept` and
    `unfinished` (by reason) of this call.
    """

    def record(skill: Skill, made: CheckedRequests | None) -> dict[str, Any]:
        checked = made or CheckedRequests(())
        queries = [query_line(query) for query in checked.queries]
        return {**skill._asdict(), "queries": queries, "rejected": dict(checked.rejected)}

    growth = SkillFiles(folder, FOLDER, _KeptRequests).grow(
        skills, llm, PROMPT, lambda skill: values_of(skill, longest), record, report
    )
    written = read_requests(folder)
    least = sum(WANTED.values()) if exactly else 1
    good = [kept for kept in written if len(kept["queries"]) >= least]
    queries = [query for kept in good for query in kept["queries"]]
    write_lines(folder.folder / "documents.jsonl", map(document_line, good))
    write_lines(folder.folder / "queries.jsonl", queries)
    return {
        "skills": len(written), **growth.told(), "documents": len(good), "queries": len(queries),
        "by_breadth": dict(Counter(query["breadth"] for query in queries)),
        "namespaces": len({namespace_of(kept["doc_id"]) for kept in good}),
        "rejected": dict(sum((Counter(kept["rejected"]) for kept in written), Counter[str]())),
        "failed": dict(Counter(kept["failed"] for kept in written if kept["failed"])),
    }  # fmt: skip


def read_requests(folder: Root) -> list[dict[str, Any]]:
    """Return what the folder keeps of every skill, by doc_id; raise `StorageError` for a damaged file.

    A record has the fields of `Skill`, its `queries` in the form of `query_line`, how many were `rejected` by
    reason, and why there are none (`failed`, null if there are some; `detail` in words).
    """
    return sorted(SkillFiles(folder, FOLDER, _KeptRequests).records(), key=lambda kept: str(kept["doc_id"]))
