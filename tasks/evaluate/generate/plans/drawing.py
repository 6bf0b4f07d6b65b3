"""Drawing: fills the steps of a shape with needs that go together, none of them twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from tasks.evaluate.generate.plans.needs import Need, is_plural
from tasks.evaluate.generate.plans.products import squashed
from tasks.evaluate.generate.plans.serving import Serving
from tasks.evaluate.generate.plans.shapes import Shape, Thread
from tasks.evaluate.generate.plans.spoken import SpokenNeed, spoken
from tasks.evaluate.generate.plans.tables import Tables

_MOST_USES = 8  # of one row in a bench
_DRAWN = 16  # needs that are looked at for one step
_KIN = 0.6  # share of sources that are near what the request is about already
_TOO_NEAR = 0.75  # cosine from which on two sources would be taken for one


class _Nothing(Exception):
    """Nothing is left that fits."""


class NeedPool:
    """Needs by what they do, and how often each row was used."""

    def __init__(self, needs: Sequence[Need], serving: Serving, tables: Tables) -> None:
        self._serving, self._tables = serving, tables
        self.uses: Counter[int] = Counter()
        self._groups: dict[str, dict[str, list[Need]]] = {"source": {}, "change": {}, "deliver": {}}
        for need in needs:
            role = need.role if need.role in self._groups else "source"
            self._groups[role].setdefault(need.noun, []).append(need)

    def drawn(self, shape: Shape, chance: random.Random) -> list[SpokenNeed] | None:
        """Return needs for the steps of a shape as they are said; None if too few fit."""
        taken: list[SpokenNeed] = []
        try:
            for thread in shape.threads:
                taken += self._thread(thread, taken, chance)
        except _Nothing:
            return None
        return taken

    def use(self, steps: Sequence[SpokenNeed]) -> None:
        """Count the rows of steps as used."""
        self.uses.update(step.need.row for step in steps)

    def _thread(
        self, thread: Thread, before: Sequence[SpokenNeed], chance: random.Random
    ) -> list[SpokenNeed]:
        taken = list(before)

        def pick(role: str, fits: Callable[[Need], bool], near: int | None = None) -> SpokenNeed:
            taken.append(self._picked(role, fits, taken, near, chance))
            return taken[-1]

        changes = [pick("change", lambda _: True) for _ in range(thread.changes)]
        takes = [self._tables.kinds[change.need.verb].takes for change in changes]

        def fits(need: Need) -> bool:
            if thread.condition and not self._may_be_none(need):
                return False
            if need.role == "act" and thread.steps > thread.sources:  # nothing comes of it
                return False
            return all(pattern is None or pattern.fullmatch(need.noun) for pattern in takes)

        sources: list[SpokenNeed] = []
        for _ in range(thread.sources):
            near = sources[0].need.row if sources and chance.random() < _KIN else None
            sources.append(pick("source", fits, near))
        deliveries = [pick("deliver", lambda _: True) for _ in range(thread.deliveries)]
        return [*sources, *changes, *deliveries]

    def _may_be_none(self, need: Need) -> bool:
        """Tell whether there may be none of what a need asks for."""
        kind = self._tables.kinds.get(need.verb)
        if need.role not in ("find", "check"):
            return False
        return is_plural(need.noun) if need.about or kind is None else kind.may_be_none

    def _picked(
        self, role: str, fits: Callable[[Need], bool], taken: Sequence[SpokenNeed], near: int | None,
        chance: random.Random,
    ) -> SpokenNeed:  # fmt: skip
        groups = self._groups[role]
        names = [name for name, needs in groups.items() if any(map(fits, needs))]
        found: list[SpokenNeed] = []
        for name in chance.sample(names, min(_DRAWN, len(names))):
            needs = sorted((n for n in groups[name] if fits(n)), key=lambda n: self.uses[n.row])
            fewest = [n for n in needs if self.uses[n.row] == self.uses[needs[0].row]]
            one = spoken(chance.choice(fewest), self._tables, chance)
            if self.uses[one.need.row] < _MOST_USES and self._apart(one, taken):
                found.append(one)
                if near is None:
                    break
        if not found:
            raise _Nothing
        if near is None:
            return found[0]
        like = self._serving.likeness(near, [one.need.row for one in found])
        kin = [(value, -place) for place, value in enumerate(like) if value < _TOO_NEAR]
        return found[-max(kin)[1]] if kin else found[0]

    def _apart(self, one: SpokenNeed, taken: Sequence[SpokenNeed]) -> bool:
        """Tell whether no row serves both a need and one that was taken: each is a step of its own."""
        if any(_overlap(one.need, other.need) for other in taken):
            return False
        mine = {row for rows in self._serving.of(one) for row in rows}
        return all(
            mine.isdisjoint(row for rows in self._serving.of(other) for row in rows) for other in taken
        )


def _overlap(one: Need, other: Need) -> bool:
    return one.noun == other.noun or bool(
        one.product and other.product and squashed(one.product) == squashed(other.product)
    )
