"""Second opinions: a language model answers three questions about the skills that the rules leave open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationInfo, field_validator

from storage.schemas import Document, Finding, RawDocument
from tasks.models.llm.ask import EARLY, Fallback, Llm, LlmOptions
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Text, Values, is_last, known_of
from tasks.models.redact import redact
from tasks.models.visible import visible
from tasks.refine.filters import not_text
from tasks.refine.risks.files import finding_on
from tasks.refine.risks.rules import Hit, risk_rules
from tasks.refine.text.encodings import decode

_PART_CHARS = 8_000
_MOST_PARTS = 12  # of one skill that are asked about, the first ones
_LEAST_CHARS = 500  # of a part that is halved because the model takes less


class Reply(Answer):
    """What the model says to one question: whether it holds, and the line that shows it."""

    holds: bool
    quote: Text

    @field_validator("quote")
    @classmethod
    def _stands_there(cls, quote: str, info: ValidationInfo) -> str:
        plain = _plain(quote)
        if info.data.get("holds") and not (plain and plain in _plain(known_of(info) or "")):
            if not is_last(info):
                raise Rejected("a quote does not stand in the part, letter for letter")
            return ""  # nothing is taken of this question, and the others stay
        return quote

    @property
    def is_unshown(self) -> bool:
        """Whether it says so, and quotes nothing that stands there."""
        return self.holds and not self.quote


class Replies(Answer):
    """The answers to the three questions, by their names, which are those of the rules `opinion.NAME`."""

    orders: Reply
    data: Reply
    later: Reply


PROMPT: Prompt[Replies] = Prompt("opinions-2", "tasks.refine/opinion_rules.txt", Replies, whole=True)


class FilePart(NamedTuple):
    """A part of a file that one question shows, from a line on."""

    path: str
    line: int
    text: str


@dataclass(slots=True)
class Opinions:
    """What the model found, by id of the document, and what a run tells of the asking."""

    risks: dict[str, list[Finding]] = field(default_factory=dict)
    fallbacks: Counter[str] = field(default_factory=Counter)  # parts without an answer, by reason
    unfinished: set[str] = field(default_factory=set)  # documents about which a later run asks again

    def told(self) -> dict[str, Any]:
        """Return the counts: skills asked about, parts without an answer by reason, unfinished skills."""
        return {
            "asked": len(self.risks), "fallbacks": dict(self.fallbacks), "unfinished": len(self.unfinished),
        }  # fmt: skip


def identity(llm: LlmOptions | None) -> str:
    """Return all that opinions depend on beside the skills; "" where none are asked for."""
    if llm is None:
        return ""
    return f" {PROMPT.name}@{llm.endpoint.model} {sorted(asdict(llm.sampling).items())!r}"


def second_opinions(llm: Llm, skills: Sequence[tuple[RawDocument, Document]], found: Opinions) -> None:
    """Ask about those skills, as fetched and as refined, in which the rules found no error; add to `found`.

    What the model finds is a warning beside what the rules found, whose findings stay as they are. A skill of
    which a part was not answered for has a finding that says so.

    Raises:
        LlmDenied: The server rejects the key, or has no such model.
    """
    parts = {
        now.doc_id: list(_parts(raw))
        for raw, now in skills
        if now.kind == "skill" and all(risk.severity != "error" for risk in now.risks)
    }
    answers: dict[str, list[tuple[FilePart, Replies | Fallback]]] = {doc_id: [] for doc_id in parts}

    async def work(doc_id: str, part: FilePart) -> None:
        values = partial(_values, doc_id=doc_id)
        answers[doc_id] += await llm.answer_parts(PROMPT, part, values, _halves, tries=2)

    llm.gather(work(doc_id, part) for doc_id, every in parts.items() for part in every[:_MOST_PARTS])
    for doc_id, said in answers.items():
        said.sort(key=lambda one: (one[0].path, one[0].line))
        failed = [reason for _, one in said if (reason := _failure(one))]
        found.fallbacks.update(failed)
        found.unfinished |= {doc_id} if any(reason in EARLY for reason in failed) else set()
        why = [f"{len(failed)} of {len(said)} parts: {failed[0]}"] if failed else []
        if (left := len(parts[doc_id]) - _MOST_PARTS) > 0:
            why.append(f"{left} parts after the first {_MOST_PARTS}")
        found.risks[doc_id] = list(_findings(said))
        if why:
            rule = risk_rules().by_id["opinion.unasked"]
            message = f"{rule.description}: {'; '.join(why)}"
            found.risks[doc_id].append(Finding(f"risk.{rule.id}", rule.severity, message))


def _failure(said: Replies | Fallback) -> str | None:
    """Return why a part has no answer to one of the questions; None: it has three."""
    if isinstance(said, Fallback):
        return said.reason
    unshown = any(reply.is_unshown for reply in (said.orders, said.data, said.later))
    return "rejected" if unshown else None


def _findings(said: Sequence[tuple[FilePart, Replies | Fallback]]) -> Iterator[Finding]:
    hits: dict[str, list[tuple[str, Hit]]] = {}
    for part, replies in said:
        if isinstance(replies, Fallback):
            continue
        for name in Replies.model_fields:
            reply: Reply = getattr(replies, name)
            if reply.holds and not reply.is_unshown:
                rule, first = f"opinion.{name}", reply.quote.strip().split("\n")[0]
                line = part.line + part.text[: max(0, part.text.find(first))].count("\n")
                hits.setdefault(rule, []).append((part.path, Hit(rule, line, reply.quote)))
    for rule, of_rule in hits.items():
        risk = finding_on(rule, [hit for _, hit in of_rule])
        yield replace(risk, message=f"{visible(of_rule[0][0])[:120]}, {risk.message}")


def _parts(raw: RawDocument) -> Iterator[FilePart]:
    files = [("SKILL.md", raw.content or b""), *((file.path, file.content) for file in raw.contents)]
    for path, content in files:
        text = redact(decode(content)[0])[0]
        for start in () if not_text(text) else range(0, len(text), _PART_CHARS):
            yield FilePart(path, 1 + text.count("\n", 0, start), text[start : start + _PART_CHARS])


def _values(part: FilePart, doc_id: str) -> Values:
    record = {"file": part.path, "line": part.line, "text": part.text}
    return Values("Answer the three questions about this part.", [record], (doc_id,), known=part.text)


def _halves(part: FilePart, why: Fallback) -> list[FilePart]:
    if not why.too_long or len(part.text) < _LEAST_CHARS:
        return []
    half = len(part.text) // 2
    first, second = part.text[:half], part.text[half:]
    return [part._replace(text=first), FilePart(part.path, part.line + first.count("\n"), second)]


def _plain(text: str) -> str:
    return " ".join(text.split())
