"""Judges of contexts: a language model's three votes, people's labels, and how far two agree.

The vote is SkillPager's (section 4.2). A person labels in a form of Markdown, filled in with an editor and
read back. It names neither the method that gave a context nor what the model said of it, so that the person
is blind to both: a pair is named by a digest of its query, method and budget, another one of its context.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from tasks.models.llm.ask import Fallback, Llm, Report
from tasks.models.llm.prompt import Answer, Prompt, Values

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


SUFFIX = ".md"
Setting = tuple[str, float | None]  # a method and its budget
_PAIR = re.compile(r"## Pair \d+ of \d+ \[([0-9a-f]{12})-([0-9a-f]{12})\]")
_ANSWER = re.compile(r"\A\W*+sufficient[^\w:]*+:\W*+(\w*+)\W*+", re.IGNORECASE)
_MEANT = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and the context that a method gave it under a budget."""

    query_id: str
    method: str
    budget: float | None
    query: str
    context: str


def form_of(pairs: Sequence[Pair], options: str) -> str:
    """Return the form for pairs in this order; `options` of the command measure the same contexts again."""
    # People answer the question that the model is asked.
    how = (
        f"{len(pairs)} pairs of a request and an excerpt of a guide. After each `Sufficient:` write yes or"
        " no, and change nothing else. A pair that is left blank is not counted."
    )
    back = f"Read it back by `skillery evaluate paging {options} --labels` and the name of this file."
    head = ["# Does the excerpt suffice for the request?", how, PROMPT.rules.split("\n\n")[1], back]
    parts = [_part(pair, f"Pair {n} of {len(pairs)}") for n, pair in enumerate(pairs, start=1)]
    return "\n\n".join([*head, *parts]) + "\n"


def _part(pair: Pair, title: str) -> str:
    name = f"{_name(pair.query_id, (pair.method, pair.budget))}-{digest_of(pair.context)}"
    texts = (("Request", pair.query), ("Excerpt", pair.context))
    quoted = [f"{what}:\n\n{_quoted(text)}" for what, text in texts]
    return "\n\n".join([f"## {title} [{name}]", *quoted, "Sufficient: "])


def _quoted(text: str) -> str:
    """Return text with a mark before each line, so that none can be taken for a line of the form."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "\n".join(f"> {line}".rstrip() for line in shown.split("\n"))


def digest_of(context: str) -> str:
    """Return the digest by which a form names a context."""
    return hashlib.sha256(context.encode()).hexdigest()[:12]


def _name(query_id: str, setting: Setting) -> str:
    return digest_of(json.dumps([query_id, *setting]))


def read_form(path: Path, query_ids: Iterable[str], settings: Collection[Setting]) -> list[Label]:
    """Return the labels of a form that a person filled in, in order; pairs left blank are passed over.

    Raises:
        WrongInput: The file cannot be read, an answer is neither yes nor no, a pair occurs twice or is of
            none of these queries and settings, or no pair has an answer; names the line.
    """
    names = {_name(query_id, setting): (query_id, setting) for query_id in query_ids for setting in settings}
    found: dict[str, Label] = {}
    for where, name, context, answer in _answers(path):
        if name not in names:
            msg = f"{where}: this pair is not measured here; give the options that the form names at its top"
            raise WrongInput(msg)
        if name in found:
            raise WrongInput(f"{where}: this pair has an answer in {found[name].where}; keep one")
        if answer.casefold() not in _MEANT:
            raise WrongInput(f"{where}: {answer[:40]!r} is no answer; write yes or no after `Sufficient:`")
        query_id, (method, budget) = names[name]
        found[name] = Label(query_id, method, budget, _MEANT[answer.casefold()], where, context)
    if not found:
        raise WrongInput(f"{path}: no pair has an answer; write yes or no after each `Sufficient:`")
    return list(found.values())


def _answers(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield `file:line` of each answer, the name of its pair, the digest of its context, and the word."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); give a form that --sample-labels wrote"
        raise WrongInput(msg) from error
    pair: re.Match[str] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(">"):
            continue
        pair = _PAIR.match(line) or pair
        answer = _ANSWER.fullmatch(line.strip())
        if pair and answer and answer[1]:
            yield f"{path}:{number}", pair[1], pair[2], answer[1]


def require_same_contexts(
    labels: Iterable[Label], contexts: Mapping[tuple[str, str, float | None], str]
) -> None:
    """Raise `WrongInput`, naming the line, if a label's context is another one now; `contexts` by `key`."""
    for label in labels:
        if label.context and label.context != digest_of(contexts[label.key]):
            msg = (
                f"{label.where}: the context is another one than the form shows: documents, encoder or "
                "settings have changed; draw and label anew, by --sample-labels"
            )
            raise WrongInput(msg)
