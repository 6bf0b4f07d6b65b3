"""LLM methods: its decomposer with other wordings and hints, its reranker, and SkillWeaver's LLM baselines.

The baselines (section 7.3) are a choice from a list of names, and thinking in turns (ReAct).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import ValidationInfo, model_validator

from storage.lance.served import require_licences
from tasks.evaluate.compose.measures import Planned, PlannedStep
from tasks.evaluate.compose.methods import (
    HINTS,
    Asking,
    Choice,
    Cutter,
    MadePlan,
    PlanMethod,
    chained,
    composed,
    depending,
    nearest,
    with_found,
)
from tasks.evaluate.compose.requests import KnownRequest
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Values, known_of
from tasks.retrieve.compose.compatibility import most_compatible
from tasks.retrieve.compose.compose import LARGEST, MOST_STEPS
from tasks.retrieve.compose.llm import (
    OWN,
    PAPER,
    HybridDecomposer,
    LlmDecomposer,
    Wording,
    described,
    llm_reranker,
)
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.compose.rounds import HINTS as DEFAULT_HINTS
from tasks.retrieve.compose.rounds import Decomposer

Row = dict[str, Any]
SHOWN = 100  # names of which LLM-direct chooses
TURNS = 8  # of ReAct; in the last one it must finish
_FOUND = 5  # rows that one search shows
_MOST = 20  # services that an answer may name
_LONGEST = 300  # characters of a search


def _required_numbers(numbers: object, most: int) -> list[int]:
    if not isinstance(numbers, list) or len(numbers) > _MOST or not all(type(n) is int for n in numbers):
        raise Rejected(f"a list of at most {_MOST} whole numbers is wanted")
    if wrong := [n for n in numbers if not 1 <= n <= most]:
        raise Rejected(f"number {wrong[0]} is none of 1 to {most}")
    return numbers


class ChosenServices(Answer):
    """The numbers of the services that a request needs, of 1 to as many as are known of."""

    services: list[int]

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, value: object, info: ValidationInfo) -> object:
        numbers = value.get("services") if isinstance(value, dict) else value
        return {"services": _required_numbers(numbers, known_of(info))}


class ReactTurn(Answer):
    """One turn of ReAct: words to search for, or the numbers of the rows that it would use.

    Known of are the number of rows that were seen, and whether it must finish.
    """

    thought: str
    action: Literal["search", "finish"]
    search: str
    use: list[int]

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, value: object, info: ValidationInfo) -> object:
        turn: dict[str, Any] = value if isinstance(value, dict) else {}
        seen, last = known_of(info)
        action, words, thought = turn.get("action"), turn.get("search"), str(turn.get("thought", ""))
        if action == "finish":
            use = _required_numbers(turn.get("use"), seen)
            return {"action": action, "thought": "", "search": "", "use": use}
        if action != "search" or last:
            reason = '"action" must be "finish"' if last else '"action" must be "search" or "finish"'
            raise Rejected(reason)
        if not isinstance(words, str) or not 0 < len(words.strip()) <= _LONGEST:
            raise Rejected(f'"search" must be a text of 1 to {_LONGEST} characters')
        search = words.encode(errors="replace").decode().strip()
        return {"action": action, "thought": thought[:_LONGEST], "search": search, "use": []}


DIRECT: Prompt[ChosenServices] = Prompt(
    "plan-direct-1", "tasks.evaluate/plan_direct_rules.txt", ChosenServices
)
REACT: Prompt[ReactTurn] = Prompt("plan-react-1", "tasks.evaluate/plan_react_rules.txt", ReactTurn)


def direct(llm: Llm) -> PlanMethod:
    """Return LLM-direct: a model is shown `SHOWN` names, those that serve the request among them.

    It makes one step of each name it chooses, each after the one before; none without a usable answer.
    """

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        rows = shown_rows(asking, request)
        names = [{"number": n, "name": row["name"]} for n, row in enumerate(rows, start=1)]
        said = llm.ask(
            DIRECT,
            Values(
                f"Which of the {len(rows)} services does the request need?",
                [{"request": request.query, "services": names}],
                [row["doc_id"] for row in rows],
                known=len(rows),
            ),
        )
        chosen = [] if isinstance(said, Fallback) else [n - 1 for n in dict.fromkeys(said.services)]
        return _made([asking.step([rows[n]], rows[n]["name"]) for n in chosen])

    return plan


def shown_rows(asking: Asking, request: KnownRequest) -> list[Row]:
    """Return the rows of which LLM-direct chooses, in an order drawn by the request's id.

    Among them are the servers of each step, or where they are not known one row of its category.
    """
    seed = int.from_bytes(hashlib.sha256(request.query_id.encode()).digest()[:8])
    draw = np.random.default_rng(seed)
    with asking.index.version() as now:
        searcher = now.searcher()
        places = np.flatnonzero(searcher.allowed(asking.filters, require_licences(now.root)))
        rows = searcher.rows(places.tolist())
    known = frozenset(name for names in request.main for name in names)
    right = [place for place, row in enumerate(rows) if row["doc_id"].lower() in known]
    for step in request.needed.steps if not known else ():
        fitting = [p for p, row in enumerate(rows) if asking.categories.of(row["category"]) & step.categories]
        right += [int(draw.choice(fitting))] if fitting else []
    chosen = list(dict.fromkeys([*right, *draw.permutation(len(rows)).tolist()]))[:SHOWN]
    return [rows[chosen[place]] for place in draw.permutation(len(chosen)).tolist()]


@dataclass
class _Turns:
    """What ReAct has seen: its turns as it is told them, and each row with the search that found it."""

    asking: Asking
    told: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    found: list[tuple[str, list[Row]]] = field(default_factory=list)  # for each row in `rows`

    def search(self, thought: str, words: str) -> None:
        seen = [row for row, _ in self.asking.search(words, _FOUND)]
        shown = [
            {"number": n, "name": row["name"], "description": described(row["description"])}
            for n, row in enumerate(seen, start=len(self.rows) + 1)
        ]
        self.told.append({"thought": thought, "search": words, "found": shown})
        self.rows += seen
        self.found += [(words, seen)] * len(seen)

    def step(self, number: int) -> PlannedStep:
        """Return the step of a row: the row first, then what else its search found."""
        words, seen = self.found[number]
        others = [row for row in seen if row is not self.rows[number]]
        return self.asking.step([self.rows[number], *others], words)


def react(llm: Llm, most: int = _MOST) -> PlanMethod:
    """Return ReAct: a model searches in turns, then names what it would use; nothing if it does not.

    With `most` 1 its plan is the first of these, the one action that the paper's loop comes to (7.3).
    """

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        turns = _Turns(asking)
        for turn in range(1, TURNS + 1):
            last = turn == TURNS
            said = llm.ask(
                REACT,
                Values(
                    f"Turn {turn} of {TURNS}." + (" Finish now." if last else ""),
                    [{"request": request.query, "turns": turns.told}],
                    list(dict.fromkeys(row["doc_id"] for row in turns.rows)),
                    known=(len(turns.rows), last),
                ),
            )
            if isinstance(said, Fallback):
                break
            if said.action == "finish":
                return _made([turns.step(n - 1) for n in list(dict.fromkeys(said.use))[:most]])
            turns.search(said.thought, said.search)
        return _made([])

    return plan


def _made(steps: Sequence[PlannedStep]) -> MadePlan:
    return MadePlan(Planned(tuple(steps), chained(len(steps))))


def llm_methods(llm: Llm, certain: float) -> dict[str, PlanMethod]:
    """Return the methods of `NEED_ENDPOINT` by name; above `certain` `hybrid` takes the local draft.

    - `llm-r0` to `llm-r3` and `llm-hints-...` are the command's `--decomposer llm` with other options.
    - `hybrid` and `llm-rerank` are the command's too; the latter reranks what `llm-r1` finds.
    - `paper` has SkillWeaver's prompts and its retriever, one round and 15 hints; `paper-r0` (Vanilla),
      `paper-r2`, `paper-r3` and `paper-hints-...` have other numbers of them. Plans have no most steps.
    - `llm-gold-count` is told the number of steps in the paper's words (section 7.6), and so is
      `paper-gold-count`, with its retriever.
    - `paper-rerank` has the model choose of what `paper` finds (appendix K), `paper-compose` equation 4.
    - `llm-direct`, `react` and `react-one` are its baselines (section 7.3).

    Where the model gives no usable answer the local decomposer does, except in the baselines, which then
    have no step; `llm.fallbacks` counts it.
    """
    own, reranker = _cut_by(llm), llm_reranker(llm)

    def papers(choose: Choice | None = None, counted: bool = False, **options: Any) -> PlanMethod:  # noqa: ANN401
        cutter = _cut_by(llm, PAPER, counted=counted)
        return with_found(composed(cutter, **options), nearest(body=False, choose=choose))

    def best(texts: Sequence[str], found: Sequence[Sequence[Mapping[str, Any]]]) -> list[int]:
        return [next(iter(reranker(*each)), 0) for each in zip(texts, found, strict=True)]

    return {
        **{f"llm-r{rounds}": composed(own, rounds=rounds) for rounds in range(4)},
        **{f"llm-hints-{hints}": composed(own, hints=hints) for hints in HINTS if hints != DEFAULT_HINTS},
        "hybrid": composed(_hybrid(llm, certain)),
        "paper": papers(),
        **{f"paper-r{rounds}": papers(rounds=rounds) for rounds in (0, 2, 3)},
        **{f"paper-hints-{hints}": papers(hints=hints) for hints in HINTS if hints != DEFAULT_HINTS},
        "llm-gold-count": composed(_cut_by(llm, PAPER, counted=True), rounds=0),
        "paper-gold-count": papers(counted=True, rounds=0),
        "paper-rerank": papers(best),
        "paper-compose": depending(papers(most_compatible)),
        "llm-rerank": composed(own, reranker=reranker),
        "llm-direct": direct(llm),
        "react": react(llm),
        "react-one": react(llm, 1),
    }


def _cut_by(llm: Llm, wording: Wording = OWN, *, counted: bool = False) -> Cutter:
    def cutter(asking: Asking, request: KnownRequest) -> LlmDecomposer:
        exactly = len(request.needed.steps) if counted else None
        local = LocalDecomposer(exactly=exactly)
        most = LARGEST if wording is PAPER else MOST_STEPS
        return LlmDecomposer(llm, local, asking.encoder, wording=wording, most=most, exactly=exactly)

    return cutter


def _hybrid(llm: Llm, certain: float) -> Cutter:
    def cutter(asking: Asking, _request: KnownRequest) -> Decomposer:
        local = LocalDecomposer()
        return HybridDecomposer(local, LlmDecomposer(llm, local, asking.encoder), certain)

    return cutter
