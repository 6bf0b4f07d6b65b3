"""Grows a bench of requests whose steps, servers and edges are known, from rows and a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluate.generate.plans.drawing import NeedPool
from tasks.evaluate.generate.plans.needs import needs_of
from tasks.evaluate.generate.plans.served_rows import ServedRow
from tasks.evaluate.generate.plans.serving import Serving
from tasks.evaluate.generate.plans.shapes import SHAPES, Edge
from tasks.evaluate.generate.plans.spoken import SpokenNeed
from tasks.evaluate.generate.plans.tables import Tables, packaged_tables
from tasks.evaluate.generate.plans.wording import Worded, worded

DIFFICULTIES: Mapping[str, tuple[int, ...]] = {"easy": (2,), "medium": (3,), "hard": (4, 5)}
"""Numbers of steps by difficulty (SkillWeaver, section 5.2)."""

_ATTEMPTS = 40  # draws for one request before it is given up
_NAMED_FIRST = 3  # ids in `servers`; more that serve are in `also`


@dataclass(frozen=True, slots=True)
class KnownStep:
    """A step of a request: what it needs, what serves that, and where and with which words it is said."""

    description: str
    category: str | None
    categories: tuple[str, ...]
    servers: tuple[str, ...]
    also: tuple[str, ...]
    span: tuple[int, int]
    words: tuple[str, ...]  # in lower case; each stands in the span
    any_of: tuple[str, ...]  # in lower case; one of them does
    product: str | None  # if it is named


@dataclass(frozen=True, slots=True)
class GrownRequest:
    """A request that was put together; edges are places from 0 on."""

    query_id: str
    difficulty: str
    query: str
    steps: tuple[KnownStep, ...]
    edges: tuple[Edge, ...]
    tags: tuple[str, ...]
    rewritten: bool = False  # a language model worded it, so that it is not known where a step is said

    def line(self) -> dict[str, Any]:
        """Return the request in the form that `evaluate compose --queries` reads."""
        return {
            "query_id": self.query_id, "difficulty": self.difficulty, "query": self.query,
            "tags": list(self.tags), "edges": [[a + 1, b + 1] for a, b in self.edges],
            "steps": [
                {
                    "step": number, "description": step.description, "category": step.category,
                    "categories": list(step.categories), "servers": list(step.servers),
                    "also": list(step.also), **({} if self.rewritten else {"spans": [list(step.span)]}),
                }
                for number, step in enumerate(self.steps, start=1)
            ],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grown:
    """A bench: its requests, rows without a need by reason, needs found, rows used, all products."""

    requests: tuple[GrownRequest, ...]
    left_out: Mapping[str, int]
    needs: int
    rows_used: int
    products: frozenset[str]


def shares(wanted: int) -> dict[str, int]:
    """Return how many requests of each difficulty: a half, a third, and the rest."""
    easy, medium = round(wanted / 2), round(wanted / 3)
    return {"easy": easy, "medium": medium, "hard": max(0, wanted - easy - medium)}


def grow(rows: Sequence[ServedRow], wanted: int, seed: int, tables: Tables | None = None) -> Grown:
    """Return up to `wanted` requests; the same rows and seed give the same.

    Args:
        rows: What is served, in any order.
        wanted: How many; a small index gives fewer.
        seed: Decides all that chance does.
        tables: Verbs and phrases; the packaged ones by default.
    """
    rows, tables = sorted(rows, key=lambda row: row.doc_id), tables or packaged_tables()
    found = needs_of(rows, tables)
    serving = Serving(rows, found)
    pool = NeedPool(found.needs, serving, tables)
    made: list[GrownRequest] = []
    told: set[str] = set()
    for difficulty, count in shares(wanted).items():
        for number in range(1, count + 1):
            request = _request(
                f"{seed}/{difficulty}/{number}", difficulty, number, pool, serving, rows, tables, told
            )
            if request:
                made.append(request)
                told.add(request.query)
    return Grown(
        tuple(made), found.left_out, len(found.needs), len(pool.uses), frozenset(filter(None, found.products))
    )


def _request(
    key: str, difficulty: str, number: int, pool: NeedPool, serving: Serving, rows: Sequence[ServedRow],
    tables: Tables, told: set[str],
) -> GrownRequest | None:  # fmt: skip
    for attempt in range(_ATTEMPTS):
        chance = random.Random(f"{key}/{attempt}")  # noqa: S311 (a sample, no secret)
        shapes = SHAPES[chance.choice(DIFFICULTIES[difficulty])]
        shape = chance.choices([one for one, _ in shapes], [weight for _, weight in shapes])[0]
        steps = pool.drawn(shape, chance)
        if steps is None:
            continue
        said = worded(shape, steps, tables, chance)
        if said.query not in told:
            pool.use(steps)
            known = tuple(_known(place, step, said, serving, rows) for place, step in enumerate(steps))
            query_id = f"{difficulty}-{number:03}"
            edges = tuple(shape.edges())
            return GrownRequest(query_id, difficulty, said.query, known, edges, tuple(sorted(said.tags)))
    return None


def _known(
    place: int, step: SpokenNeed, said: Worded, serving: Serving, rows: Sequence[ServedRow]
) -> KnownStep:
    serve, more = serving.of(step)
    ids = [rows[row].doc_id for row in serve]
    sections = Counter(category for row in serve if (category := rows[row].category))
    return KnownStep(
        step.description, rows[serve[0]].category, tuple(sections), tuple(ids[:_NAMED_FIRST]),
        (*ids[_NAMED_FIRST:], *(rows[row].doc_id for row in more)), said.spans[place], step.words,
        step.any_of, step.need.product if step.named else None,
    )  # fmt: skip
