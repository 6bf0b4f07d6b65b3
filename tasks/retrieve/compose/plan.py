"""Plans: the steps of a task in an order in which they can be done, and what each needs of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tasks.retrieve.compose.decompose.steps import Span

KINDS = ("data", "order", "condition")


@dataclass(frozen=True, slots=True)
class Dependency:
    """A direct dependency between steps by their places in the task: `after` needs `before`, and why."""

    before: int
    after: int
    kind: str  # one of KINDS
    why: str


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The order of a task's steps: `order` holds places, `groups` places that may be done side by side."""

    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    dependencies: tuple[Dependency, ...]


def planned(steps: int, found: Iterable[Dependency]) -> PlannedTask:
    """Return an order of steps that keeps the dependencies.

    Of dependencies that lead back to where they began, the later one in `found` is dropped, so that there is
    always an order. Steps that wait for the same stand in one group; ties are broken by place.
    """
    by_pair: dict[tuple[int, int], Dependency] = {}
    closed: set[tuple[int, int]] = set()
    for one in found:
        if one.before != one.after and (one.after, one.before) not in closed:
            by_pair.setdefault((one.before, one.after), one)
            ahead = {one.before} | {a for a, b in closed if b == one.before}
            behind = {one.after} | {b for a, b in closed if a == one.after}
            closed |= set(product(ahead, behind))
    kept = list(by_pair.values())
    depth = _depths(steps, kept)
    order = tuple(sorted(range(steps), key=lambda place: (depth[place], place)))
    groups: dict[int, list[int]] = {}
    for place in order:
        groups.setdefault(depth[place], []).append(place)
    ordered = sorted(kept, key=lambda d: (order.index(d.after), order.index(d.before)))
    return PlannedTask(order, tuple(tuple(group) for group in groups.values()), tuple(ordered))


def closure(edges: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return a graph's edges, and every edge that follows from them (its transitive closure)."""
    closed = set(edges)
    while more := {(a, d) for a, b in closed for c, d in closed if b == c} - closed:
        closed |= more
    return frozenset(closed)


def reduced(plan: PlannedTask, steps: int) -> PlannedTask:
    """Return a plan without dependencies that follow from others."""
    closed = closure((d.before, d.after) for d in plan.dependencies)
    between = {(a, d) for a, b in closed for c, d in closed if b == c}
    return planned(steps, [d for d in plan.dependencies if (d.before, d.after) not in between])


def _depths(steps: int, found: Sequence[Dependency]) -> Mapping[int, int]:
    """Return how many steps must be done, one after another, before each."""
    depth = dict.fromkeys(range(steps), 0)
    for _ in range(steps):  # a path has at most so many steps
        for one in found:
            depth[one.after] = max(depth[one.after], depth[one.before] + 1)
    return depth


@dataclass(frozen=True, slots=True)
class StepText:
    """A step as dependencies are found from: its text, where it stands, and what stands right before."""

    text: str
    span: Span
    lead: str
