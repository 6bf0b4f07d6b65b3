"""LLM baselines of SkillWeaver, section 7.3: a choice from a list of names, and thinking in turns (ReAct)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from storage.lance.served import require_licences
from tasks.evaluate.compose.measures import Planned, PlannedStep
from tasks.evaluate.compose.methods import Asking, MadePlan, PlanMethod
from tasks.evaluate.compose.requests import CategorySet, KnownRequest
from tasks.models.llm.errors import Rejected
from tasks.models.llm.fallbacks import FallbackLlm, WrittenPrompt
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import list_schema, object_schema
from tasks.retrieve.compose.llm import described

Row = dict[str, Any]
SHOWN = 100  # names of which LLM-direct chooses
TURNS = 8  # of ReAct; in the last one it must finish
_FOUND = 5  # rows that one search shows
_MOST = 20  # services that an answer may name
_LONGEST = 300  # characters of a search
_NUMBERS = list_schema({"type": "integer"})
DIRECT = WrittenPrompt(
    "plan-direct-1", "tasks.evaluate", "plan_direct_rules.txt", object_schema(services=_NUMBERS)
)
REACT = WrittenPrompt(
    "plan-react-1",
    "tasks.evaluate",
    "plan_react_rules.txt",
    object_schema(
        thought={"type": "string"},
        action={"type": "string", "enum": ["search", "finish"]},
        search={"type": "string"},
        use=_NUMBERS,
    ),
)


def direct(llm: FallbackLlm) -> PlanMethod:
    """Return LLM-direct: a model is shown `SHOWN` names, those that serve the request among them.

    It makes one step of each name it chooses, each after the one before; none without a usable answer.
    """

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        rows = shown_rows(asking, request)
        names = [{"number": n, "name": row["name"]} for n, row in enumerate(rows, start=1)]
        chosen = llm.ask_checked(
            DIRECT,
            {"request": request.query, "services": names},
            f"Which of the {len(rows)} services does the request need?",
            _numbers_to(len(rows)),
            doc_ids=[row["doc_id"] for row in rows],
        )
        return _made([_step([rows[n]], rows[n]["name"], asking.categories) for n in chosen or ()])

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
        with self.asking.index.version() as now:
            rows = now.searcher().search(
                words, k=_FOUND, filters=self.asking.filters, licences=require_licences(now.root)
            )
        seen = [row for row, _ in rows]
        shown = [
            {
                "number": len(self.rows) + n,
                "name": row["name"],
                "description": described(row["description"]),
            }
            for n, row in enumerate(seen, start=1)
        ]
        self.told.append({"thought": thought, "search": words, "found": shown})
        self.rows += seen
        self.found += [(words, seen)] * len(seen)

    def step(self, number: int) -> PlannedStep:
        """Return the step of a row: the row first, then what else its search found."""
        words, seen = self.found[number]
        others = [row for row in seen if row is not self.rows[number]]
        return _step([self.rows[number], *others], words, self.asking.categories)


def react(llm: FallbackLlm) -> PlanMethod:
    """Return ReAct: a model searches in turns, then names what it would use; nothing if it does not."""

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        turns = _Turns(asking)
        for turn in range(1, TURNS + 1):
            last = turn == TURNS
            said = llm.ask_checked(
                REACT,
                {"request": request.query, "turns": turns.told},
                f"Turn {turn} of {TURNS}." + (" Finish now." if last else ""),
                _turn_check(len(turns.rows), last=last),
                doc_ids=list(dict.fromkeys(row["doc_id"] for row in turns.rows)),
            )
            if said is None:
                break
            if said["action"] == "finish":
                return _made([turns.step(n - 1) for n in dict.fromkeys(said["use"])])
            turns.search(said["thought"], said["search"])
        return _made([])

    return plan


def _made(steps: Sequence[PlannedStep]) -> MadePlan:
    return MadePlan(Planned(tuple(steps), frozenset(pairwise(range(len(steps))))))


def _step(rows: Sequence[Row], text: str, categories: CategorySet) -> PlannedStep:
    ids = tuple(row["doc_id"].lower() for row in rows)
    return PlannedStep(ids, tuple(categories.of(row["category"]) for row in rows), text)


def _numbers_to(most: int) -> Callable[[str], list[int]]:
    """Return the check of an answer `{"services": numbers}`; it gives places from 0, each once."""

    def check(text: str) -> list[int]:
        value = find_json(text)
        numbers = _required_numbers(value.get("services") if isinstance(value, dict) else value, most)
        return list(dict.fromkeys(number - 1 for number in numbers))

    return check


def _required_numbers(numbers: object, most: int) -> list[int]:
    if not isinstance(numbers, list) or len(numbers) > _MOST or not all(type(n) is int for n in numbers):
        reason = f"a list of at most {_MOST} whole numbers is wanted"
        raise Rejected(reason)
    if wrong := [n for n in numbers if not 1 <= n <= most]:
        reason = f"number {wrong[0]} is none of 1 to {most}"
        raise Rejected(reason)
    return numbers


def _turn_check(seen: int, *, last: bool) -> Callable[[str], dict[str, Any]]:
    """Return the check of one turn of ReAct, which has seen so many rows."""

    def check(text: str) -> dict[str, Any]:
        value = find_json(text)
        turn = value if isinstance(value, dict) else {}
        action, words = turn.get("action"), turn.get("search")
        if action == "finish":
            return {"action": action, "use": _required_numbers(turn.get("use"), seen)}
        if action != "search" or last:
            reason = '"action" must be "finish"' if last else '"action" must be "search" or "finish"'
            raise Rejected(reason)
        if not isinstance(words, str) or not 0 < len(words.strip()) <= _LONGEST:
            reason = f'"search" must be a text of 1 to {_LONGEST} characters'
            raise Rejected(reason)
        search = words.encode(errors="replace").decode().strip()
        return {"action": action, "thought": str(turn.get("thought", ""))[:_LONGEST], "search": search}

    return check
