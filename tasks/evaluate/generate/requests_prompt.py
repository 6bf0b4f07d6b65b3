"""The prompt that asks a language model for requests about one skill, and the check of its answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tasks.evaluate.measures.evidence import EvidenceQuery, Item, fold_text, spans_in
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import list_schema, messages_of, object_schema
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import shortened
from tasks.retrieve.routing.skill import Skill

PROMPT = "queries-1"

"""Raised whenever a word of what is sent changes, in `data/queries_prompt.txt` or here."""

WANTED = {"narrow": 2, "medium": 2, "broad": 1}

"""Requests a skill by breadth: five, as in SkillPager, section 4.1."""

_ITEMS = {"narrow": (1, 3), "medium": (2, 6), "broad": (4, 12)}
_SPAN = (8, 400)  # characters of a passage
_QUERY = 800  # characters of a request at most
_BODY = 60_000  # characters of a skill that are sent
_TELLING_WORDS = 6  # a passage of so many words that stands in its own request gives the answer away
_SHOWN = 6  # problems named to the model
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair is no text, and no file could hold it
_TEXT = {"type": "string"}
_REQUEST = object_schema(
    breadth={"type": "string", "enum": list(WANTED)},
    query=_TEXT,
    evidence=list_schema(object_schema(any_of=list_schema(_TEXT))),
)
_SCHEMA = object_schema(queries=list_schema(_REQUEST))


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


def question_about(skill: Skill, *, sampling: Sampling, attempt: int, complaint: str | None) -> Question:
    """Return the question for five requests about a skill, which quotes the skill as data, without its id.

    Args:
        skill: Of a body longer than 60,000 characters the two ends are sent.
        sampling: How the answer is drawn.
        attempt: Number of the try, from 0.
        complaint: What was wrong with the answer before.
    """
    body = shortened(skill.body, _BODY)
    record = {"name": skill.name, "description": skill.description, "body": body}
    asked = "Write the five requests about this guide."
    messages = messages_of("tasks.evaluate", "queries_prompt.txt", record, asked, complaint)
    return Question(PROMPT, messages, sampling, _SCHEMA, attempt, (skill.doc_id,))


def checked_requests(skill: Skill, *, strict: bool) -> Callable[[str], CheckedRequests]:
    """Return the check of an answer about a skill; it raises `Rejected` if no good request is left.

    Every passage must be a verbatim part of the body; one that differs only in case, white space or
    punctuation is put right. Query ids are `<doc_id>#<number>`, from 1. If `strict`, one bad request rejects
    the answer; if not, bad ones are counted by reason: `malformed`, `breadth`, `query`, `evidence`,
    `ungrounded`, `telling`, `double` or `missing`.
    """

    def check(text: str) -> CheckedRequests:
        good: list[EvidenceQuery] = []
        problems: list[_Problem] = []
        for number, entry in enumerate(entries := _entries(find_json(text)), start=1):
            try:
                good.append(_query(skill, f"{skill.doc_id}#{number}", entry, good))
            except _Problem as problem:
                problems.append(_Problem(problem.code, f"request {number}: {problem}"))
        lacking = sum(WANTED.values()) - len(entries)
        if lacking > 0:
            said = f"{len(entries)} requests instead of {sum(WANTED.values())}"
            problems += [_Problem("missing", said)] * lacking
        if problems and (strict or not good):
            raise Rejected("; ".join(list(dict.fromkeys(map(str, problems)))[:_SHOWN]))
        return CheckedRequests(tuple(good), Counter(p.code for p in problems))

    return check


def _entries(value: object) -> list[object]:
    if isinstance(value, dict):
        value = value.get("queries")
    if not isinstance(value, list):
        reason = 'the answer is no object {"queries": [...]}'
        raise Rejected(reason)
    return value


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
