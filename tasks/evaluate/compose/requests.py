"""Requests whose steps are known, read from a file, and the measures of plans against them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from tasks.retrieve.compose.dependencies import closure

Edges = frozenset[tuple[int, int]]
KS = (1, 10)


@dataclass(frozen=True, slots=True)
class NeededStep:
    """A step that a request needs: the ids that serve it, in lower case, and the categories that count.

    `servers` is None, or `categories` empty, where they are not known.
    """

    servers: frozenset[str] | None
    categories: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of a plan: its candidates, the best first, as ids in lower case with their categories.

    `sure` grows with how likely the first candidate is right, on the method's own scale.
    """

    ids: tuple[str, ...]
    categories: tuple[frozenset[str], ...]
    text: str = ""
    sure: float = 0.0
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Needed:
    """What a request needs; edges `(a, b)` are places from 0 on: step b depends directly on step a.

    `edges` is None where they are not known.
    """

    steps: tuple[NeededStep, ...]
    edges: Edges | None = field(default_factory=frozenset)

    @property
    def known_servers(self) -> bool:
        """Whether it is known what serves each step."""
        return all(step.servers is not None for step in self.steps)

    @property
    def known_categories(self) -> bool:
        """Whether it is known in which category each step is."""
        return all(step.categories for step in self.steps)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan as it is measured; edges as those of `Needed`."""

    steps: tuple[PlannedStep, ...]
    edges: Edges = field(default_factory=frozenset)


def measured(plan: Planned, needed: Needed) -> dict[str, float]:
    """Return the measures of one plan, each from 0 to 1, and `steps`, the number of its steps.

    `catr@k` and `srvr@k` are shares of the needed steps; predicted and needed steps are paired one to one so
    that most are right, or by place (`positional`). `chain_cat` and `chain_share` are both definitions of
    SkillWeaver's Chain_cat (section 5.3): all categories right, and the mean share of right ones. What the
    request does not say (servers, categories, edges) is not measured. `over`, `under`, `unfound` and
    `misranked` say why a plan fails, at most one of them: too many steps, too few, or as many as are needed,
    of which one finds nothing that serves among its first 10, or chooses something else.
    """
    p, g = len(plan.steps), len(needed.steps)
    whole = p == g and not any(step.gap for step in plan.steps)  # of a gap nothing is chosen
    values: dict[str, float] = {"steps": float(p), "da": float(p == g), "da±1": float(abs(p - g) <= 1)}
    values |= {"over": float(p > g), "under": float(p < g)}
    if needed.known_categories:
        values |= _recalls("catr", _category_hit, plan, needed)
        values["chain_cat"] = float(whole and values["catr@1"] > 1 - 1e-9)
        values["chain_share"] = values["positional_catr@1"]
    if needed.known_servers:
        values |= _recalls("srvr", _server_hit, plan, needed)
        values["stepf1"] = 2 * values["srvr@1"] * g / (p + g) if p + g else 1.0
        values["chain"] = float(whole and values["srvr@1"] > 1 - 1e-9)
        if needed.edges is not None:
            values |= _graph_measures(plan, needed, needed.edges)
            values["plan"] = values["graph"] * values["chain"]
    if (kind := next((kind for kind in ("srvr", "catr") if f"{kind}@1" in values), None)) is not None:
        found, chosen = (values[f"{kind}@{k}"] > 1 - 1e-9 for k in KS[::-1])
        values |= {"unfound": float(p == g and not found), "misranked": float(p == g and found > chosen)}
    return values


def _recalls(
    name: str, hit: Callable[[PlannedStep, NeededStep, int], bool], plan: Planned, needed: Needed
) -> dict[str, float]:
    p, g = len(plan.steps), len(needed.steps)

    def share(right: list[bool]) -> float:
        return sum(right) / g if g else float(p == 0)

    by_place = [hit(a, b, 1) for a, b in zip(plan.steps, needed.steps, strict=False)]
    found = {f"positional_{name}@1": share(by_place)}
    for k in KS:
        pairs = paired(plan, needed, lambda a, b, k=k: hit(a, b, k))  # type: ignore[misc]
        found[f"{name}@{k}"] = share([ok for *_, ok in pairs])
    return found


def served_pairs(plan: Planned, needed: Needed, k: int) -> list[tuple[int, int, bool]]:
    """Return pairs (planned, needed, whether any of its first `k` candidates serves), the most of these."""
    return paired(plan, needed, lambda a, b: _server_hit(a, b, k))


def paired(
    plan: Planned, needed: Needed, hit: Callable[[PlannedStep, NeededStep], bool]
) -> list[tuple[int, int, bool]]:
    """Return pairs (planned, needed, hit), one to one, with the most hits; of equals the nearest in place."""
    p, g = len(plan.steps), len(needed.steps)
    if not p or not g:
        return []
    hits = np.array([[hit(a, b) for b in needed.steps] for a in plan.steps], dtype=bool)
    apart = np.abs(np.subtract.outer(np.arange(p), np.arange(g))) / (2.0 * (p + g) ** 2)
    rows, columns = linear_sum_assignment(hits - apart, maximize=True)
    return [(int(a), int(b), bool(hits[a, b])) for a, b in zip(rows, columns, strict=True)]


def _graph_measures(plan: Planned, needed: Needed, edges: Edges) -> dict[str, float]:
    same = len(plan.steps) == len(needed.steps)
    mine, theirs = closure(plan.edges), closure(edges)
    pairs = served_pairs(plan, needed, 10)
    # Of as many steps as are needed each is one of them: the misses are paired by place.
    place = {a: b for a, b, hit in pairs if hit or same}
    # An edge of a step that is paired with none is of no needed edge: it counts as wrong.
    found = {(place[a], place[b]) for a, b in mine if a in place and b in place} & theirs
    f1 = 2 * len(found) / (len(mine) + len(theirs)) if mine or theirs else 1.0
    return {"edgef1": f1, "graph": float(same and len(found) == len(mine) == len(theirs))}


def _category_hit(planned: PlannedStep, needed: NeededStep, k: int) -> bool:
    return any(found & needed.categories for found in planned.categories[:k])


def _server_hit(planned: PlannedStep, needed: NeededStep, k: int) -> bool:
    return needed.servers is not None and not needed.servers.isdisjoint(planned.ids[:k])


_FORM = "{query_id, query, steps, edges}"


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request whose steps are known: what it says, what each step is for, and what it needs.

    `descriptions` is None where the file has none; `main` holds each step's `servers` without `also`, in
    lower case, and is empty where they are not known; `paraphrase` says the same in other words.
    """

    query_id: str
    query: str
    difficulty: str
    descriptions: tuple[str, ...] | None
    needed: Needed
    tags: tuple[str, ...] = ()
    main: tuple[frozenset[str], ...] = ()
    paraphrase: str | None = None

    def reworded(self) -> KnownRequest:
        """Return the request in the words of its paraphrase."""
        return replace(self, query=self.paraphrase or self.query, paraphrase=None)


@dataclass(frozen=True, slots=True)
class CategorySet:
    """The categories that count: those of the index, or others that a file maps them to."""

    mapped: Mapping[str, str] | None = None

    def of(self, category: str | None) -> frozenset[str]:
        """Return the category of a row of the index; none if it has none, or one that is not mapped."""
        found = category if self.mapped is None else self.mapped.get(category or "")
        return frozenset({found}) if found else frozenset()

    def of_step(self, step: Mapping[str, Any]) -> frozenset[str]:
        """Return the categories of a request's step: its `categories`, or its `category24` where mapped."""
        if self.mapped is not None and "category24" in step:
            return frozenset({str(step["category24"])})
        return frozenset(c for name in step.get("categories", ()) for c in self.of(name))


def read_categories(path: Path | None) -> CategorySet:
    """Return the categories of a JSON file `{category of the index: category that counts}`; no file, its own.

    Raises:
        WrongInput: The file cannot be read, or is no such object.
    """
    if path is None:
        return CategorySet()
    try:
        held = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        msg = f"--categories {path} cannot be read ({error}): give JSON {{category: category that counts}}"
        raise WrongInput(msg) from error
    if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
        msg = f"--categories {path} is no JSON object of texts: give {{category: category that counts}}"
        raise WrongInput(msg)
    return CategorySet(held)


def read_requests(path: Path, categories: CategorySet | None = None) -> list[KnownRequest]:
    """Return the requests of a file of JSON lines `{query_id, query, difficulty, tags, steps, edges}`.

    A step may have `description`, `servers`, `also`, and `categories` or `category24`; an edge is a pair of
    places from 1 on. What a request does not say (its servers, its edges) is not measured on it.

    Raises:
        WrongInput: The file cannot be read, holds none, or a line has another form; names file and line.
    """
    chosen, found = categories or CategorySet(), []
    for where, row in read_lines(path, _FORM):
        found.append(_request(where, row, chosen))
    if not found:
        raise WrongInput(f"{path}: holds no request; give JSON lines {_FORM}")
    if len({request.query_id for request in found}) < len(found):
        raise WrongInput(f"{path}: a query_id occurs twice; mend the file")
    return found


def _request(where: str, row: dict[str, Any], categories: CategorySet) -> KnownRequest:
    query_id, query = text_field(row, "query_id", where), text_field(row, "query", where)
    try:
        given = [_told_something(step) for step in row["steps"]]
        known = all("servers" in step for step in given)
        steps = tuple(_step(step, categories, known=known) for step in given)
        told = tuple(step.get("description") for step in given)
        edges = frozenset((int(a) - 1, int(b) - 1) for a, b in row["edges"]) if "edges" in row else None
        if edges and not all(0 <= place < len(steps) for edge in edges for place in edge):
            raise ValueError(f"an edge leads outside of {len(steps)} steps")
        main = tuple(_lower(step["servers"]) for step in given) if known else ()
        tags = tuple(map(str, row.get("tags", ())))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WrongInput(f"{where}: a step or an edge has another form ({error!r}); give {_FORM}") from error
    if categories.mapped is None and any("category24" in step for step in given):
        msg = f"{where}: its steps have `category24`: give --categories, which maps the index's to them"
        raise WrongInput(msg)
    texts = tuple(map(str, told)) if all(told) else None
    paraphrase = text_field(row, "paraphrase", where) if row.get("paraphrase") else None
    difficulty = str(row.get("difficulty", ""))
    return KnownRequest(query_id, query, difficulty, texts, Needed(steps, edges), tags, main, paraphrase)


_SAYS = ("description", "servers", "categories", "category24")


def _told_something(step: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(key in step for key in _SAYS):
        raise ValueError(f"a step has none of {', '.join(_SAYS)}")
    return step


def _step(step: Mapping[str, Any], categories: CategorySet, *, known: bool) -> NeededStep:
    servers = _lower([*step["servers"], *step.get("also", ())]) if known else None
    return NeededStep(servers, categories.of_step(step))


def _lower(names: list[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
