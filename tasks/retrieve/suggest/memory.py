"""Memory: the moments of one domain as arrays, and how like each of them a situation is."""

from __future__ import annotations

import functools
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tasks.induce.recurrence import Moment, Situation, Target
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import PageOutline
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.terms import function_terms, term_counts

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
# How like a situation a moment is: of the states' marks, the tasks, the actions before; whether the page
# lacks what was acted on next, how much of its words the task says, and how much its own task alone said.
FEATURES = ("state", "task", "before", "absent", "said", "said_by_its_task")
_BEFORE = 3
_NONE = -1
Thing = TypeVar("Thing")
_LEAST_RARITY = 0.01


class _Ids(dict[Thing, int]):
    """Numbers things in the order in which they come."""

    def __missing__(self, thing: Thing) -> int:
        self[thing] = len(self)
        return self[thing]


@dataclass(frozen=True)
class _Arrays:
    """What is asked for at each step, made once until more is learned; rows are moments but where named."""

    skills: Sequence[Body]
    moment: Places  # the task text of each
    task_id: Places
    first: Places  # what was acted on next
    before: Places  # shape `(moments, 3)`
    pairs: tuple[Places, Places]
    vectors: Vectors  # of task texts
    rarity: Numbers  # of marks
    mass: Numbers  # the rarities of the marks of each
    said_moment: Places  # of each term of what was acted on next, as the three below
    said_word: Places
    said_mass: Numbers
    said_own: npt.NDArray[np.bool_]

    @functools.cached_property
    def lengths(self) -> Places:
        """The number of actions of each skill."""
        return np.array([len(body) for body in self.skills], dtype=np.int64)


class Memory:
    """Moments that skills were learned from, in the order in which they came.

    `skills` are the bodies of skills by their number; `pairs` are the moments and skills that belong
    together, two arrays of one length.
    """

    def __init__(self) -> None:
        self.skills: list[Body] = []
        self._skill: _Ids[Body] = _Ids()
        self._target: _Ids[Target] = _Ids()
        self._task: _Ids[str] = _Ids()
        self._mark: _Ids[str] = _Ids()
        self._word: _Ids[int] = _Ids()
        self._vectors: list[Vectors] = []
        self._tasks_of: list[frozenset[int]] = []  # the terms of each task text
        self._of_moment = array("q")  # the task text of each moment
        self._task_id = array("q")
        self._task_ids: _Ids[str] = _Ids()
        self._first, self._before = array("q"), array("q")
        self._marks: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        self._sizes: list[tuple[int, ...]] = []
        self._pair_moment, self._pair_skill = array("q"), array("q")
        self._said_moment, self._said_word, self._said_share = array("q"), array("q"), array("d")
        self._said_own = array("b")

    def __len__(self) -> int:
        return len(self._of_moment)

    def add(self, moments: Iterable[Moment], vector: Vectors) -> None:
        """Learn the moments of one trajectory; `vector` is that of its task, shape `(384,)`."""
        self.__dict__.pop("_arrays", None)
        for moment in moments:
            self._add(moment, vector)

    def _add(self, moment: Moment, vector: Vectors) -> None:
        place, situation = len(self), moment.situation
        task = self._task[situation.task]
        if task == len(self._vectors):
            self._vectors.append(vector)
            self._tasks_of.append(telling_terms(situation.task))
        self._of_moment.append(task)
        self._task_id.append(self._task_ids[moment.task_id])
        for back in range(1, _BEFORE + 1):
            known = len(situation.before) >= back
            self._before.append(self._target[situation.before[-back]] if known else _NONE)
        self._first.append(self._target[moment.after[0]] if moment.after else _NONE)
        own = tuple(self._mark[mark] for mark in sorted(situation.marks))
        self._sizes.append(own)
        for mark in own:
            self._marks[mark].append(place)
        self._add_words(place, moment.after, self._tasks_of[task])
        for body in dict.fromkeys(moment.bodies):
            number = self._skill[body]
            if number == len(self.skills):
                self.skills.append(body)
            self._pair_moment.append(place)
            self._pair_skill.append(number)

    def _add_words(self, place: int, after: Sequence[Target], task: frozenset[int]) -> None:
        for target in after:
            words = telling_terms(target[2] if target[2] is not None else target[0].replace("_", " "))
            for word in sorted(words):
                self._said_moment.append(place)
                self._said_word.append(self._word[word])
                self._said_share.append(1 / len(words))
                self._said_own.append(word in task)

    @functools.cached_property
    def _arrays(self) -> _Arrays:
        n, texts = len(self), len(self._tasks_of)
        counts = np.array([len(self._marks[mark]) for mark in range(len(self._mark))], dtype=np.float64)
        rarity = np.maximum(np.log((n + 1) / (counts + 0.5)), _LEAST_RARITY)
        said = np.zeros(len(self._word))
        for known in self._tasks_of:
            said[[self._word[each] for each in known if each in self._word]] += 1
        word = _array(self._said_word)
        return _Arrays(
            self.skills, _array(self._of_moment), _array(self._task_id), _array(self._first),
            _array(self._before).reshape(-1, _BEFORE), (_array(self._pair_moment), _array(self._pair_skill)),
            np.stack(self._vectors) if self._vectors else np.zeros((0, 1), dtype=np.float32), rarity,
            np.array([rarity[list(own)].sum() for own in self._sizes]), _array(self._said_moment), word,
            np.maximum(np.log((texts + 1) / (said + 0.5)), 0)[word] * np.array(self._said_share),
            np.array(self._said_own, dtype=bool),
        )  # fmt: skip

    @property
    def pairs(self) -> tuple[Places, Places]:
        """The moments, and for each a skill that did what was done next."""
        return self._arrays.pairs

    def number_of(self, body: Body) -> int:
        """Return the number of a skill that was learned."""
        return self._skill[body]

    @property
    def lengths(self) -> Places:
        """The number of actions of each skill."""
        return self._arrays.lengths

    def of_task(self, task_id: str) -> npt.NDArray[np.bool_]:
        """Return which moments are of a task."""
        return np.asarray(self._arrays.task_id == self._task_ids.get(task_id, _NONE))

    def features(self, situation: Situation, vector: Vectors) -> Numbers:
        """Return how like a situation each moment is, shape `(moments, FEATURES)`.

        Args:
            situation: The task, the state and the actions before.
            vector: Of the task, as `add` took them.
        """
        if not len(self):
            return np.zeros((0, len(FEATURES)))
        held = self._arrays
        said, by_its_task = self._said(telling_terms(situation.task))
        columns = [
            self._states(situation.marks), (held.vectors @ vector)[held.moment],
            self._agree(situation.before), self._absent(situation.page), said, by_its_task,
        ]  # fmt: skip
        return np.stack(columns, axis=1).astype(np.float64)

    def _states(self, marks: frozenset[str]) -> Numbers:
        """Return the weighed Jaccard index of the marks of each moment and of a state."""
        rarity, mass = self._arrays.rarity, self._arrays.mass
        known = [self._mark[mark] for mark in sorted(marks) if mark in self._mark]
        shared = np.zeros(len(self))
        for mark in known:
            shared[_array(self._marks[mark])] += rarity[mark]
        unknown = (len(marks) - len(known)) * np.log(2 * (len(self) + 1))
        return np.asarray(shared / (rarity[known].sum() + unknown + mass - shared + 1e-9))

    def _agree(self, before: Sequence[Target]) -> Numbers:
        """Return how many of the last actions are the same, from the last one back."""
        own = [self._target.get(target, _NONE - 1) for target in reversed(before)][:_BEFORE]
        own += [_NONE] * (_BEFORE - len(own))
        agreed = np.cumprod(self._arrays.before == np.array(own), axis=1)
        # Nothing before on both sides tells that both have begun, once.
        begun = np.array(own) == _NONE
        return np.asarray((agreed * ~begun).sum(axis=1) + (agreed * begun).any(axis=1))

    def _absent(self, page: PageOutline | None) -> Numbers:
        if page is None:
            return np.zeros(len(self))
        gone = [role is not None and not page.shows(role, label or "") for _, role, label in self._target]
        first = self._arrays.first
        return np.where(first >= 0, np.array([*gone, False], dtype=np.float64)[first], 0.0)

    def _said(self, task: frozenset[int]) -> tuple[Numbers, Numbers]:
        held, n = self._arrays, len(self)
        here = np.array([each in task for each in self._word], dtype=bool)[held.said_word]
        said = np.bincount(held.said_moment, held.said_mass * here, n).astype(np.float64)
        others = held.said_mass * (held.said_own & ~here)
        return said, np.bincount(held.said_moment, others, n).astype(np.float64)


def _array(values: array[int]) -> Places:
    return np.frombuffer(values, dtype=np.int64).copy() if len(values) else np.zeros(0, dtype=np.int64)


def telling_terms(text: str) -> frozenset[int]:
    """Return the terms of a text but for function words."""
    return frozenset(term_counts(text)) - function_terms()


def shows_all(body: Body, page: PageOutline | None) -> bool:
    """Tell whether a page shows every element that a skill's caller must give."""
    return page is None or all(
        action.role is None
        or not isinstance(action.source(ELEMENT), Arg)
        or page.shows(action.role, action.target or "")
        for action in body
    )
