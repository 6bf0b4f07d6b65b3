"""Shapes of requests: threads, what each begins with, changes and delivers, and the edges of that."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Thread:
    """Steps that belong together: sources, then perhaps a change of what they give, then deliveries of it."""

    sources: int
    changes: int = 0
    deliveries: int = 0
    condition: bool = False  # the delivery is wanted only if the source gives cause
    sequence: bool = False  # the sources are done one after another, because the text says so

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return self.sources + self.changes + self.deliveries

    def edges(self, first: int) -> list[Edge]:
        """Return its direct dependencies, its own steps counted from `first`."""
        sources = list(range(first, first + self.sources))
        if self.sequence:
            return list(pairwise(sources))
        change = [first + self.sources] if self.changes else []
        begin = first + self.sources + self.changes
        deliveries = list(range(begin, begin + self.deliveries))
        last = change or sources
        return [(a, b) for a in sources for b in change] + [(a, b) for a in last for b in deliveries]


class Shape(NamedTuple):
    """Threads side by side."""

    threads: tuple[Thread, ...]

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return sum(thread.steps for thread in self.threads)

    def edges(self) -> list[Edge]:
        """Return the direct dependencies between steps, by their places from 0 on; each leads onwards."""
        found: list[Edge] = []
        first = 0
        for thread in self.threads:
            found += thread.edges(first)
            first += thread.steps
        return sorted(found)

    def tags(self) -> set[str]:
        """Return what is special: `conditional`, `fan-in`, `fan-out`, `chain`, `parallel`."""
        found: set[str] = set()
        for thread in self.threads:
            if thread.condition:
                found.add("conditional")
            if not thread.sequence and thread.sources > 1 and thread.steps > thread.sources:
                found.add("fan-in")
            if thread.deliveries > 1:
                found.add("fan-out")
            if thread.steps > 1 and (thread.sequence or thread.sources == 1) and thread.deliveries < 2:
                found.add("chain")
        return found | ({"parallel"} if len(self.threads) > 1 else set())


def _shape(*threads: Thread) -> Shape:
    return Shape(threads)


_ONE, _SENT = Thread(1), Thread(1, deliveries=1)
_IF = Thread(1, deliveries=1, condition=True)

SHAPES: dict[int, tuple[tuple[Shape, float], ...]] = {
    2: (
        (_shape(_SENT), 5), (_shape(Thread(1, 1)), 2), (_shape(_IF), 2), (_shape(_ONE, _ONE), 2),
        (_shape(Thread(2, sequence=True)), 1),
    ),
    3: (
        (_shape(Thread(1, 1, 1)), 3), (_shape(Thread(2, deliveries=1)), 4),
        (_shape(Thread(1, deliveries=2)), 3),
        (_shape(Thread(2, 1)), 1), (_shape(_IF, _ONE), 1), (_shape(_SENT, _ONE), 1),
        (_shape(_ONE, _ONE, _ONE), 1),
        (_shape(Thread(3, sequence=True)), 0.3),
    ),
    4: (
        (_shape(Thread(3, deliveries=1)), 3), (_shape(Thread(2, 1, 1)), 2),
        (_shape(Thread(2, deliveries=2)), 2),
        (_shape(Thread(1, 1, 2)), 2), (_shape(_SENT, _SENT), 2), (_shape(_IF, _SENT), 1),
        (_shape(Thread(2, deliveries=1), _ONE), 1), (_shape(Thread(2, sequence=True), _SENT), 1),
        (_shape(Thread(4, sequence=True)), 0.3),
    ),
    5: (
        (_shape(Thread(3, deliveries=2)), 2), (_shape(Thread(3, 1, 1)), 1), (_shape(Thread(2, 1, 2)), 2),
        (_shape(Thread(2, deliveries=1), _SENT), 2), (_shape(Thread(1, 1, 1), _SENT), 2),
        (_shape(Thread(4, deliveries=1)), 1), (_shape(Thread(2, deliveries=1), _IF), 1),
        (_shape(Thread(5, sequence=True)), 0.3),
    ),
}  # fmt: skip
"""Shapes by the number of steps, each with its weight."""
