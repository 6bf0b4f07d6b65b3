"""Judges of contexts: a language model, by three votes (SkillPager, section 4.2); how far two agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
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


_FORM = "{query_id, method, budget, sufficient}"


@dataclass(frozen=True, slots=True)
class Label:
    """What a person says of the context that a method gave a query; `where` is `file:line`.

    `context` is the digest of what the person read; empty where the label does not tell.
    """

    query_id: str
    method: str
    budget: float | None
    sufficient: bool
    where: str = ""
    context: str = ""

    @property
    def key(self) -> tuple[str, str, float | None]:
        """The context that is meant."""
        return self.query_id, self.method, self.budget


def cohen_kappa(a: Sequence[bool], b: Sequence[bool]) -> float | None:
    """Return `(p_o - p_e) / (1 - p_e)` of two judges with equally many verdicts (Cohen 1960).

    `p_o` is the share of equal verdicts, `p_e` what chance gives judges with these rates of yes. None if
    there are no verdicts, or both judges always say the same one thing.
    """
    if not a:
        return None
    yes_a, yes_b = sum(a) / len(a), sum(b) / len(b)
    by_chance = yes_a * yes_b + (1 - yes_a) * (1 - yes_b)
    if by_chance == 1:
        return None
    return (_raw(a, b) - by_chance) / (1 - by_chance)


def agreement(a: Sequence[bool], b: Sequence[bool], patterns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return how far two judges agree on the same cases, at least one.

    They are `cases`, `raw` (share of equal verdicts), `kappa`, `only_a` and `only_b` (cases that one alone
    finds sufficient), and with `patterns`, how the votes of one were split by case, `by_pattern`, the same
    for each.
    """
    found: dict[str, Any] = {
        "cases": len(a),
        "raw": _raw(a, b),
        "kappa": cohen_kappa(a, b),
        "only_a": sum(x and not y for x, y in zip(a, b, strict=True)),
        "only_b": sum(y and not x for x, y in zip(a, b, strict=True)),
    }
    if patterns is not None:
        rows = list(zip(a, b, patterns, strict=True))
        groups = {p: [(x, y) for x, y, of in rows if of == p] for p in sorted(set(patterns), reverse=True)}
        found["by_pattern"] = {
            p: agreement([x for x, _ in pairs], [y for _, y in pairs]) for p, pairs in groups.items()
        }
    return found


def read_labels(path: Path) -> list[Label]:
    """Return people's labels, in order, from lines `{query_id, method, budget (or null), sufficient}`.

    Raises:
        WrongInput: The file cannot be read or is empty, a field is missing or of the wrong kind, or a context
            is labelled twice; names the line.
    """
    labels: dict[tuple[str, str, float | None], Label] = {}
    for where, record in read_lines(path, _FORM):
        query_id, method = (text_field(record, key, where) for key in ("query_id", "method"))
        label = Label(query_id, method, _budget(record, where), _sufficient(record, where), where)
        if label.key in labels:
            raise WrongInput(f"{where}: the same context has a label in {labels[label.key].where}; keep one")
        labels[label.key] = label
    if not labels:
        raise WrongInput(f"{path}: holds no labels; write lines {_FORM}")
    return list(labels.values())


def require_labelled(
    labels: Iterable[Label], query_ids: Iterable[str], settings: Iterable[tuple[str, float | None]]
) -> None:
    """Raise `WrongInput`, naming the line, if a label's query, or method and budget, is not measured."""
    known, measured = set(query_ids), set(settings)
    for label in labels:
        if label.query_id not in known:
            msg = f"{label.where}: no query {label.query_id!r} is given; drop the label or add the query"
            raise WrongInput(msg)
        if (label.method, label.budget) not in measured:
            said = f"{label.method!r} with budget {label.budget}"
            raise WrongInput(f"{label.where}: {said} is not measured; name it by --method and --budget")


def _raw(a: Sequence[bool], b: Sequence[bool]) -> float:
    return sum(x == y for x, y in zip(a, b, strict=True)) / max(len(a), 1)


def _budget(record: dict[str, Any], where: str) -> float | None:
    budget = record.get("budget")
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise WrongInput(f"{where}: `budget` is {budget!r}; it must be a number or null")
    return float(budget)


def _sufficient(record: dict[str, Any], where: str) -> bool:
    verdict = record.get("sufficient")
    if not isinstance(verdict, bool):
        raise WrongInput(f"{where}: `sufficient` is {verdict!r}; it must be true or false")
    return verdict
