"""What can be offered in one domain: skills with vectors of their descriptions, support, and uses."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tasks.induce.skills.actions import Body
from tasks.induce.skills.wording import described, page_named
from tasks.induce.windows.recurrence import Moment, Target
from tasks.models.protocols import Vectors

Places = npt.NDArray[np.int64]
Thing = TypeVar("Thing")
Encode = Callable[[Sequence[str]], Vectors]
_TasksByPage = defaultdict[str, set[str]]
_UNKNOWN = -1  # a task or an action that was never met


class _Numbers(dict[Thing, int]):
    """Numbers things in the order in which they come."""

    def __missing__(self, thing: Thing) -> int:
        self[thing] = len(self)
        return self[thing]


@dataclass(frozen=True, slots=True)
class SkillUses:
    """The numbers of skill, state, action before and task of each use, those of skill 0 first.

    `first` is the place of the first use of each skill.
    """

    skill: Places
    state: Places
    before: Places
    task: Places
    first: Places


class Offered:
    """The skills of a domain by their number, as they are learned, trajectory by trajectory.

    Args:
        encode: Returns unit vectors of texts, shape `(texts, 384)`.
        descriptions: Of skills that are described already.
        vectors: Of texts that are encoded already.
    """

    def __init__(
        self,
        encode: Encode,
        descriptions: Mapping[Body, str] | None = None,
        vectors: Mapping[str, Vectors] | None = None,
    ) -> None:
        self._encode, self._descriptions = encode, descriptions or {}
        self._skill: _Numbers[Body] = _Numbers()
        self._state: _Numbers[str] = _Numbers()
        self._target: _Numbers[Target | None] = _Numbers()
        self._task: _Numbers[str] = _Numbers()
        self._columns = tuple(array("q") for _ in range(4))  # of uses: skill, state, before, task
        self.skills: list[Body] = []
        self._supports = array("q")
        self._skills_of: defaultdict[str, set[int]] = defaultdict(set)  # by task
        self._pages: defaultdict[int, _TasksByPage] = defaultdict(lambda: defaultdict(set))
        self._every_page: _TasksByPage = defaultdict(set)
        self._vectors = dict(vectors or {})
        self._forget_arrays()

    def _forget_arrays(self) -> None:
        """Have what is the same at each step made again, as more is learned."""
        self._of_descriptions: Vectors | None = None
        self._of_states: Vectors | None = None
        self._uses: SkillUses | None = None

    def learn(self, moments: Iterable[Moment]) -> None:
        """Add the moments of one trajectory."""
        self._forget_arrays()
        for moment in moments:
            for body in dict.fromkeys(moment.bodies):
                self._add(moment, body)

    def _add(self, moment: Moment, body: Body) -> None:
        skill, own = self._skill[body], self._skills_of[moment.task_id]
        if skill == len(self.skills):
            self.skills.append(body)
            self._supports.append(0)
        self._supports[skill] += skill not in own
        own.add(skill)
        self._pages[skill][moment.page].add(moment.task_id)
        self._every_page[moment.page].add(moment.task_id)
        numbers = skill, self._state[moment.state], self._target[moment.before], self._task[moment.task_id]
        for column, number in zip(self._columns, numbers, strict=True):
            column.append(number)

    def description(self, skill: int) -> str:
        """Return what a skill does: as it was given, else by its actions and the page of most tasks."""
        body = self.skills[skill]
        given = self._descriptions.get(body)
        return given or described(body, page_named(self._pages[skill], self._every_page))

    def vectors(self) -> Vectors:
        """Return the vectors of all descriptions, shape `(skills, 384)`."""
        if self._of_descriptions is None:
            self._of_descriptions = self._encoded([self.description(n) for n in range(len(self.skills))])
        return self._of_descriptions

    def states(self) -> Vectors:
        """Return the vectors of the states in which skills were used, shape `(states, 384)`."""
        if self._of_states is None:
            self._of_states = self._encoded(list(self._state))
        return self._of_states

    def _encoded(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one or more; each is encoded once."""
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self._vectors |= dict(zip(new, self._encode(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def uses(self) -> SkillUses:
        """Return the uses of skills, each once."""
        if self._uses is None:
            columns = np.stack([np.frombuffer(column, dtype=np.int64) for column in self._columns], axis=1)
            skill, state, before, task = np.unique(columns, axis=0).T
            first = np.searchsorted(skill, np.arange(len(self.skills)))
            self._uses = SkillUses(skill, state, before, task, first)
        return self._uses

    def number_of_target(self, target: Target | None) -> int:
        """Return the number by which uses name the action before them, None where there was none."""
        return self._target.get(target, _UNKNOWN)

    def number_of_task(self, task_id: str) -> int:
        """Return the number by which uses name their task."""
        return self._task.get(task_id, _UNKNOWN)

    def support(self, without: str = "") -> Places:
        """Return how many tasks did each skill, one of them left out, shape `(skills,)`."""
        found = np.array(self._supports, dtype=np.int64)
        found[list(self._skills_of.get(without, ()))] -= 1
        return found
