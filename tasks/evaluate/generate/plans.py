"""Plans that are known beforehand: requests of several steps, which an LLM writes about served rows.

A seed draws the rows and which step works on what another gives; what the LLM writes is kept where, asked for
the steps of it, it lists as many. SkillWeaver's own way (5.2) needs none: rows of categories that differ,
each in a phrase of its category, in the words of a template.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, ValidationInfo

from storage.lance.served import Served, require_licences
from storage.root import Root
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Text, Values, known_of

# Numbers of steps by difficulty (SkillWeaver, section 5.2).
DIFFICULTIES: Mapping[str, tuple[int, ...]] = {"easy": (2,), "medium": (3,), "hard": (4, 5)}
_COLUMNS = ["doc_id", "name", "description", "category", "content_hash", "licence", "vector"]
_FEWEST_WORDS = 4  # of a description that tells what a row does
_DESCRIBED = 400  # characters of a description
_LONGEST = 1200  # characters of a request
_COPY = 0.9  # cosine from which on two rows are taken to say the same
_TOO_NEAR = 0.75  # cosine from which on two rows of one request would be taken for one

_FEWEST_ROWS = 5  # of a category that requests are about (5.2)

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A served skill or server as it is read: its text, its section, and what copies share."""

    doc_id: str
    name: str
    description: str
    category: str | None
    content_hash: str
    vector: npt.NDArray[np.float32]


def served_rows(root: Root, served: Served) -> tuple[list[ServedRow], int]:
    """Return the rows of a version whose licence lets their text be shown, by id, and how many others are.

    Raises:
        StorageError: The table or the file of licences' classes is damaged or missing.
    """
    licences = require_licences(root)
    rows = served.skills_table(root).rows(_COLUMNS).to_pylist()
    shown = [row for row in rows if licences.class_of(row["licence"]) == "allow"]
    found = [
        ServedRow(
            row["doc_id"], row["name"] or "", row["description"] or "", row["category"],
            row["content_hash"] or "", np.array(row["vector"], dtype=np.float32),
        )
        for row in shown
    ]  # fmt: skip
    return sorted(found, key=lambda row: row.doc_id), len(rows) - len(shown)


def _in_one_line(text: str) -> str:
    line = " ".join(text.split())
    if not 0 < len(line) <= _LONGEST:
        raise Rejected(f"a text has {len(line)} characters, and 1 to {_LONGEST} are allowed")
    return line


def _one_each(needs: list[str], info: ValidationInfo) -> list[str]:
    if known_of(info) is not None and len(needs) != known_of(info):
        raise Rejected(f"`needs` has {len(needs)} texts, and there are {known_of(info)} services")
    return needs


class PlanRequest(Answer):
    """A request that needs some services, and what it needs each for."""

    query: Annotated[Text, AfterValidator(_in_one_line)]
    needs: Annotated[list[Annotated[Text, AfterValidator(_in_one_line)]], AfterValidator(_one_each)]


class PlanSteps(Answer):
    """The things that a request asks for."""

    steps: Annotated[list[Text], Field(max_length=20)]


class Paraphrase(Answer):
    """A request in other words."""

    query: Annotated[Text, AfterValidator(_in_one_line)]


PARAPHRASE: Prompt[Paraphrase] = Prompt(
    "plan-paraphrase-1", "tasks.evaluate/paraphrase_prompt.txt", Paraphrase
)
WRITE: Prompt[PlanRequest] = Prompt("plans-2", "tasks.evaluate/plan_requests_prompt.txt", PlanRequest)
RECOUNT: Prompt[PlanSteps] = Prompt("plans-1", "tasks.evaluate/recount_prompt.txt", PlanSteps)


@dataclass(frozen=True, slots=True)
class DrawnPlan:
    """Rows that a request is to need, in an order in which they can be used; edges are places from 0 on."""

    query_id: str
    difficulty: str
    rows: tuple[int, ...]
    edges: tuple[Edge, ...]
    tags: tuple[str, ...]


@dataclass(slots=True)
class WrittenPlans:
    """Requests as `evaluate compose --queries` reads them; how many are missing, by reason.

    `discarded` was written in a way that cannot be used, `unfinished` is left for a later run.
    """

    lines: list[dict[str, Any]] = field(default_factory=list)
    discarded: Counter[str] = field(default_factory=Counter)
    unfinished: Counter[str] = field(default_factory=Counter)


class PlanDraws:
    """Draws plans out of served rows; the same rows and seed give the same.

    `left_out` counts the rows whose text tells too little, by reason. If `categories` maps sections of rows
    to categories, the rows of a request are of categories that differ and have five rows, and each step works
    on what the one before gives.
    """

    def __init__(self, rows: Sequence[ServedRow], categories: Mapping[str, str] | None = None) -> None:
        self.rows = sorted(rows, key=lambda row: row.doc_id)
        self.uses: Counter[int] = Counter()
        self.categories = [(categories or {}).get(row.category or "") for row in self.rows]
        told = [place for place, row in enumerate(self.rows) if len(row.description.split()) >= _FEWEST_WORDS]
        sizes, self._sequential = Counter(self.categories), categories is not None
        enough = {name for name, size in sizes.items() if name and size >= _FEWEST_ROWS}
        self._usable = [p for p in told if categories is None or self.categories[p] in enough]
        self.left_out = {"no-description": len(self.rows) - len(told)} if len(told) < len(self.rows) else {}
        vectors = np.array([row.vector for row in self.rows], dtype=np.float64)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True) if len(vectors) else np.ones((0, 1))
        self._vectors = vectors / np.where(norms > 0, norms, 1) if len(vectors) else vectors

    def drawn(self, wanted: int, seed: int) -> list[DrawnPlan]:
        """Return up to so many plans: a half are easy, a third medium, the rest hard."""
        easy, medium = round(wanted / 2), round(wanted / 3)
        counts = {"easy": easy, "medium": medium, "hard": max(0, wanted - easy - medium)}
        plans = []
        for difficulty, count in counts.items():
            for number in range(1, count + 1):
                chance = random.Random(f"{seed}/{difficulty}/{number}")  # noqa: S311 (a sample, no secret)
                steps = chance.choice(DIFFICULTIES[difficulty])
                if rows := self._together(steps, chance):
                    self.uses.update(rows)
                    tag, edges = ("chain", _chain(steps)) if self._sequential else _edges(steps, chance)
                    plans.append(DrawnPlan(f"{difficulty}-{number:03}", difficulty, rows, edges, (tag,)))
        return plans

    def _together(self, steps: int, chance: random.Random) -> tuple[int, ...] | None:
        """Return places of rows of which none passes for another, those that were used least first."""
        order = chance.sample(self._usable, len(self._usable))
        chosen: list[int] = []
        if self._sequential:
            first = {self.categories[place]: place for place in order}  # a category is as likely as another
            return tuple(chance.sample([*first.values()], steps)) if len(first) >= steps else None
        for place in sorted(order, key=lambda place: self.uses[place]):
            if (self._vectors[chosen] @ self._vectors[place] < _TOO_NEAR).all():
                chosen.append(place)
            if len(chosen) == steps:
                return tuple(chosen)
        return None

    def copies(self, place: int) -> list[str]:
        """Return the ids of rows that say the same as one, without its own."""
        own = self.rows[place]
        near = self._vectors @ self._vectors[place] >= _COPY
        same = [near[other] or row.content_hash == own.content_hash for other, row in enumerate(self.rows)]
        return [row.doc_id for other, row in enumerate(self.rows) if same[other] and other != place]


def _edges(steps: int, chance: random.Random) -> tuple[str, tuple[Edge, ...]]:
    """Return a tag and the edges of steps: one after the other, all into the last one, or side by side."""
    tag = chance.choices(("chain", "fan-in", "parallel"), (4, 4 if steps > 2 else 0, 1))[0]
    if tag == "parallel":
        return tag, ()
    last = steps - 1
    return tag, _chain(steps) if tag == "chain" else tuple((k, last) for k in range(last))


def _chain(steps: int) -> tuple[Edge, ...]:
    return tuple(itertools.pairwise(range(steps)))


def plan_words() -> dict[str, Any]:
    """Return the packaged words of SkillWeaver's way: `categories` by section, `phrases`, `templates`."""
    held = resources.files("tasks.evaluate").joinpath("data/plan_templates.json").read_text("utf-8")
    return json.loads(held)  # type: ignore[no-any-return]


def templated_plans(draws: PlanDraws, plans: Sequence[DrawnPlan], seed: int) -> WrittenPlans:
    """Return the requests of plans that were drawn with categories, in the words of templates."""
    words, found = plan_words(), WrittenPlans()
    for plan in plans:
        chance = random.Random(f"{seed}/{plan.query_id}/words")  # noqa: S311 (a sample, no secret)
        own = [draws.categories[place] for place in plan.rows]
        needs = [chance.choice(words["phrases"][name]) for name in own]
        query = chance.choice(words["templates"][str(len(needs))]).format(*needs)
        line = _line(draws, plan, PlanRequest(query=query[0].upper() + query[1:], needs=needs))
        for step, name in zip(line["steps"], own, strict=True):
            step["category24"] = name
        found.lines.append(line)
    return found


def write_plans(
    draws: PlanDraws,
    plans: Sequence[DrawnPlan],
    llm: Llm,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> WrittenPlans:
    """Return what an LLM writes about plans, in their order.

    A request is discarded where the model, asked for the steps of what it wrote, lists another number
    (`steps`), or gives no usable answer (`rejected`, `refused`). `LlmDenied`: no such model, or no access.
    """
    found = WrittenPlans()
    for plan, said in zip(plans, llm.gather([_written(draws, p, llm) for p in plans], report), strict=True):
        if isinstance(said, PlanRequest):
            found.lines.append(_line(draws, plan, said))
        elif isinstance(said, Fallback) and said.early:
            found.unfinished[said.reason] += 1
        else:
            found.discarded[said if isinstance(said, str) else said.reason] += 1
    return found


def paraphrase(
    lines: Sequence[dict[str, Any]], wanted: int, llm: Llm, report: Callable[[int, int], None]
) -> Counter[str]:
    """Have an LLM say so many requests in other words (7.4), which is their `paraphrase`.

    Returns the reasons for which some have none; raises `LlmDenied` as `write_plans`.
    """
    chosen = random.Random(wanted).sample(lines, min(wanted, len(lines)))  # noqa: S311 (a sample, no secret)
    asked = (
        llm.answer(PARAPHRASE, Values("Say it in other words.", [{"request": line["query"]}]))
        for line in chosen
    )
    missed = Counter[str]()
    for line, said in zip(chosen, llm.gather(asked, report), strict=True):
        if isinstance(said, Fallback):
            missed[said.reason] += 1
        else:
            line["paraphrase"] = said.query
    return missed


async def _written(draws: PlanDraws, plan: DrawnPlan, llm: Llm) -> PlanRequest | Fallback | str:
    rows = [draws.rows[place] for place in plan.rows]
    services = [
        {"number": n, "name": row.name, "does": " ".join(row.description.split())[:_DESCRIBED]}
        for n, row in enumerate(rows, start=1)
    ]
    record = {"services": services, "order": [[a + 1, b + 1] for a, b in plan.edges]}
    ids = [row.doc_id for row in rows]
    said = await llm.answer(WRITE, Values("Write the request.", [record], ids, known=len(rows)))
    if isinstance(said, Fallback):
        return said
    listed = await llm.answer(RECOUNT, Values("List the things to do.", [{"request": said.query}]))
    if isinstance(listed, Fallback):
        return listed
    return said if len(listed.steps) == len(rows) else "steps"


def _line(draws: PlanDraws, plan: DrawnPlan, said: PlanRequest) -> dict[str, Any]:
    rows = [draws.rows[place] for place in plan.rows]
    return {
        "query_id": plan.query_id, "difficulty": plan.difficulty, "query": said.query,
        "tags": list(plan.tags), "edges": [[a + 1, b + 1] for a, b in plan.edges],
        "steps": [
            {
                "step": number, "description": need, "category": row.category,
                "categories": [row.category] if row.category else [], "servers": [row.doc_id],
                "also": draws.copies(place),
            }
            for number, place, row, need in zip(itertools.count(1), plan.rows, rows, said.needs, strict=False)
        ],
    }  # fmt: skip
