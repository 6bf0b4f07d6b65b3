"""Measures of a plan against the steps and dependencies that a request needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

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
