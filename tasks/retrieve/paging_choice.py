"""Which units to print: the most that is likely to be needed for the tokens that there are."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.retrieve.paging_outline import Floats, Prepared

# A unit's value is divided by its tokens to this power: 1 would fill pages with the shortest (see the card).
_POWER = 0.5
# Share of what a unit drags along (headings, fences, its lead-in) that counts against it; the rest is taken
# to be shared with units still to come.
_DRAG = 0.3
_MARK_TOKENS = 1
# A longer lead-in has to earn its place by itself.
_LONGEST_LEAD = 25


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens of what is printed: of each unit, each heading, and around the parts of each node."""

    units: Sequence[int]
    headings: Sequence[int]
    frames: Sequence[int]


@dataclass(slots=True)
class Chooser:
    """Takes units one by one, each time the one worth most for what it adds; keeps what is taken in order.

    Args:
        document: The document made ready.
        chances: How likely each unit is to be needed, in (0, 1).
        costs: What they cost.
    """

    document: Prepared
    chances: Floats
    costs: Costs
    taken: dict[int, int] = field(default_factory=dict)
    used: int = 0
    _opened: set[int] = field(default_factory=set)
    _framed: set[int] = field(default_factory=set)
    _drag: list[int] = field(default_factory=list)
    _keys: list[float] = field(default_factory=list)
    _heap: list[tuple[float, int]] = field(default_factory=list)
    _under: list[list[int]] = field(default_factory=list)
    _owner: list[int] = field(default_factory=list)
    _first: list[int] = field(default_factory=list)
    _leads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Single numbers are read far faster from lists than from arrays.
        owner = self._owner = self.document.units.owner.tolist()
        self._first = self.document.units.first.tolist()
        self._leads = self.document.lead.tolist()
        self._under = [[] for _ in self.document.headings]
        for unit, node in enumerate(owner):
            for heading in self.document.where.above[node]:
                self._under[heading].append(unit)
        self._drag = [self._dragged(unit) for unit in range(len(owner))]
        self._keys = [self._key(unit) for unit in range(len(owner))]
        self._heap = [(key, unit) for unit, key in enumerate(self._keys)]
        heapq.heapify(self._heap)

    def choose(self, ceiling: float, enough: float = 1.0) -> list[int]:
        """Return the units taken, in the order in which they were.

        Args:
            ceiling: The most tokens that they, their headings, frames and gap marks may sum up to.
            enough: Stop when the units taken hold this share of all chances.
        """
        wanted = enough * float(self.chances.sum())
        held = 0.0
        while self._heap and (enough >= 1 or held < wanted):
            key, unit = heapq.heappop(self._heap)
            if unit in self.taken or key != self._keys[unit]:
                continue
            group = [*self._lead(unit), unit]
            added = self._added(unit, group)
            if self.used + added > ceiling and len(group) > 1:
                group = [unit]
                added = self._added(unit, group)
            if self.used + added <= ceiling:
                self._take(group, added)
                held += sum(float(self.chances[u]) for u in group)
        return list(self.taken)

    def _added(self, unit: int, group: Sequence[int]) -> int:
        gap = bool(self.taken) - (unit - 1 in self.taken or len(group) > 1) - (unit + 1 in self.taken)
        extra = sum(self.costs.units[u] for u in group) + self._surroundings(unit)
        return extra + _MARK_TOKENS * gap

    def _take(self, group: Sequence[int], added: int) -> None:
        self.used += added
        cheaper: set[int] = set()
        for unit in group:
            self.taken[unit] = added
            node = self._owner[unit]
            first, last = self._first[node : node + 2]
            if node not in self._framed:
                self._framed.add(node)
                cheaper.update(range(first, last) if self.costs.frames[node] else ())
            for heading in set(self.document.where.above[node]) - self._opened:
                self._opened.add(heading)
                cheaper.update(self._under[heading])
        for unit in cheaper:
            if unit not in self.taken:
                self._drag[unit] = self._dragged(unit)
                self._keys[unit] = self._key(unit)
                heapq.heappush(self._heap, (self._keys[unit], unit))

    def _lead(self, unit: int) -> list[int]:
        """Return the units, not yet taken, of the node that announces a unit's."""
        lead = self._leads[self._owner[unit]]
        if lead < 0:
            return []
        first, last = self._first[lead : lead + 2]
        if last - first > 1 or self.costs.units[first] > _LONGEST_LEAD or first in self.taken:
            return []
        return [first]

    def _dragged(self, unit: int) -> int:
        return self._surroundings(unit) + sum(self.costs.units[u] for u in self._lead(unit))

    def _surroundings(self, unit: int) -> int:
        node = self._owner[unit]
        above = sum(self.costs.headings[h] for h in self.document.where.above[node] if h not in self._opened)
        return above + (0 if node in self._framed else self.costs.frames[node])

    def _key(self, unit: int) -> float:
        cost = self.costs.units[unit] + _DRAG * self._drag[unit]
        worth: float = -float(self.chances[unit]) / float(max(cost, 1)) ** _POWER
        return worth
