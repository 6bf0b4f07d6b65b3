"""A language model judges whether contexts suffice: three votes, their majority (SkillPager, section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from tasks.models.llm.ask import Fallback, Llm, Report
from tasks.models.llm.prompt import Answer, Prompt, Values

VOTES = 3
_WORDS = {"true": True, "yes": True, "sufficient": True, "false": False, "no": False, "insufficient": False}


def _verdict(said: object) -> object:
    return _WORDS.get(said.strip().casefold()) if isinstance(said, str) else said


class Vote(Answer):
    """What is said of a context; `missing` makes the model think, and is not read."""

    missing: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    sufficient: Annotated[bool, BeforeValidator(_verdict)]


PROMPT: Prompt[Vote] = Prompt("judge-1", "tasks.evaluate/judge_prompt.txt", Vote, whole=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A request and the context that it got from a document."""

    doc_id: str
    query: str
    context: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The votes on one case, True where the context is said to suffice; fewer than 3 where some failed."""

    votes: tuple[bool, ...] = ()

    @property
    def sufficient(self) -> bool | None:
        """What most of three votes say; None: too few are there to tell."""
        yes, no = self.votes.count(True), self.votes.count(False)
        return yes > no if max(yes, no) > VOTES // 2 else None

    @property
    def pattern(self) -> str:
        """How the votes are split, the larger side first: `3-0`, `2-1`, or shorter where votes failed."""
        yes, no = self.votes.count(True), self.votes.count(False)
        return f"{max(yes, no)}-{min(yes, no)}"


@dataclass(slots=True)
class Judged:
    """The verdicts on cases, in their order, and how many votes failed, by reason."""

    verdicts: list[Verdict]
    failed: Counter[str] = field(default_factory=Counter)


def judge(llm: Llm, cases: Sequence[Case], report: Report | None = None) -> Judged:
    """Ask a language model three times about each case, and about equal cases once.

    The votes are attempts 0 to 2 of one question, so that each is kept under its own key and none is asked
    for twice. An answer that is no verdict is asked for again, its fault named. The paper decodes at
    temperature 0. `report` is told of the different cases.

    Raises:
        LlmDenied: The server lets nobody in, or has no such model.
    """

    async def votes(case: Case) -> list[Vote | Fallback]:
        return [await llm.answer(PROMPT, values_of(case, vote)) for vote in range(VOTES)]

    different = list(dict.fromkeys(cases))
    said = dict(zip(different, llm.gather(map(votes, different), report), strict=True))
    failed = Counter(v.reason for of_case in said.values() for v in of_case if isinstance(v, Fallback))
    found = {case: tuple(v.sufficient for v in said[case] if isinstance(v, Vote)) for case in different}
    return Judged([Verdict(found[case]) for case in cases], failed)


def values_of(case: Case, vote: int) -> Values:
    """Return what is asked for one vote, from 0, on a case.

    Neither ids nor the method are sent, so that equal contexts share their votes.
    """
    record = {"request": case.query, "excerpt": case.context}
    return Values("Does the excerpt suffice for the request?", [record], (case.doc_id,), attempt=vote)
