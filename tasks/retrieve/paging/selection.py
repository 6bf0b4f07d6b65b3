"""Selection of the units to print, and what ends a page: a budget of tokens, or enough of what is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.retrieve.paging.prepared import Prepared
from tasks.retrieve.paging.terms import Floats, Integers

# Without a budget: stop when what is taken holds this share of what is likely to be needed (see the card).
ENOUGH = 0.88
# A unit's value is divided by its tokens to this power: 1 would fill pages with the shortest (see the card).
_POWER = 0.5
# Share of what a unit drags along (headings, fences, its lead-in) that counts against it; the rest is taken
# to be shared with units still to come.
_DRAG = 0.6
# A longer lead-in has to earn its place by itself.
_LONGEST_LEAD = 25
# Of the tokens left, this share is given away at once, to the units worth most; then all are weighed anew.
_STEP = 0.7
# And no more than this share of the units that fit.
_MOST = 0.5


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens of each unit, of each heading, of the frame of each node's parts, and of one gap mark."""

    units: Integers
    headings: Integers
    frames: Integers
    mark: int


def choose(
    document: Prepared, chances: Floats, costs: Costs, *, ceiling: float, enough: float = 1.0
) -> list[int]:
    """Take units greedily by chance over added cost, in batches that get smaller; return them in that order.

    Stop when the units taken hold the share `enough` of the sum of all chances, each in (0, 1). The ceiling
    is for the tokens of units, their headings, frames and gap marks.
    """
    choice = _Choice(document, chances, costs)
    wanted = enough * float(chances.sum())
    every = int(costs.units.sum() + costs.headings.sum() + costs.frames.sum())
    while choice.held < wanted or enough >= 1:
        offered, added = choice.offers(ceiling)
        if not len(offered):
            break
        least = _STEP * (min(ceiling, every) - choice.used)
        taking = max(1, int(np.searchsorted(np.cumsum(added), least, side="right")))
        if enough < 1:
            gained = choice.held + np.cumsum(chances[offered[:taking]])
            taking = min(taking, 1 + int(np.searchsorted(gained, wanted)))
        choice.take(offered[:taking])
    return choice.order


class _Choice:
    """The units taken so far, in `order`, the tokens `used`, and the chances `held`."""

    def __init__(self, document: Prepared, chances: Floats, costs: Costs) -> None:
        self._document, self._chances, self._costs = document, chances, costs
        self._owner = document.units.owner
        self._logs = np.log(chances)
        n = len(chances)
        # One entry more each: what stands for "none" is taken and costs nothing.
        self._sizes = np.append(costs.units, 0)
        self._taken = np.append(np.zeros(n, dtype=np.bool_), [True])
        self._headings = np.append(costs.headings, 0)
        self._frames = costs.frames.copy()
        self._lead = _leads(document, costs)
        self.order: list[int] = []
        self.used, self.held = 0, 0.0

    def offers(self, ceiling: float) -> tuple[Integers, Integers]:
        """Return the units that fit, the best value first, and the tokens that each would add."""
        document, taken = self._document, self._taken
        over = self._headings[document.above].sum(axis=0)[document.section] + self._frames[self._owner]
        lead = np.where(taken[self._lead], 0, self._sizes[self._lead])
        dragged = over + lead
        sizes = self._costs.units
        beside = taken[:-1].astype(np.int64)
        # A lead-in may stand apart, and so make a gap of its own.
        gaps = 1 + (lead > 0)
        gaps[1:] -= beside[:-1]
        gaps[:-1] -= beside[1:]
        added = sizes + dragged + self._costs.mark * gaps
        # Where the first and the last piece are cut two marks more are printed.
        fit = np.flatnonzero(~taken[:-1] & (added <= ceiling - self.used - 2 * self._costs.mark))
        worth = np.log(np.maximum(sizes[fit] + _DRAG * dragged[fit], 1)) * _POWER - self._logs[fit]
        most = 1 + int(_MOST * len(fit))
        best = np.sort(np.argpartition(worth, most - 1)[:most]) if most < len(fit) else np.arange(len(fit))
        order = best[np.argsort(worth[best], kind="stable")]
        return fit[order], np.maximum(added[fit[order]], 0)

    def take(self, units: Integers) -> None:
        """Take units, and the units that announce them."""
        document, taken = self._document, self._taken
        taken[units] = True
        announcing = self._lead[units]
        # Not `np.unique`, which loads masked arrays: that takes longer than a page.
        leads = np.flatnonzero(np.bincount(announcing[~taken[announcing]]))
        taken[leads] = True
        new = np.concatenate([leads, units])
        self._headings[document.above[:, document.section[new]]] = 0
        self._frames[self._owner[new]] = 0
        self.order += new.tolist()
        self.held += float(self._chances[new].sum())
        self.used = self._spent()

    def _spent(self) -> int:
        costs, taken = self._costs, self._taken[:-1]
        opened = costs.headings.sum() - self._headings.sum() + costs.frames.sum() - self._frames.sum()
        runs = int(taken[0]) + int((taken[1:] & ~taken[:-1]).sum())
        return int(costs.units[taken].sum() + opened) + costs.mark * (runs - 1)


def _leads(document: Prepared, costs: Costs) -> Integers:
    """Return for each unit the unit that announces its node, or the number of units."""
    first, n = document.units.first, len(costs.units)
    announcing = first[document.lead]
    single = first[document.lead + 1] - announcing == 1
    short = costs.units[np.minimum(announcing, n - 1)] <= _LONGEST_LEAD
    lead: Integers = np.where((document.lead >= 0) & single & short, announcing, n)
    return lead[document.units.owner]
