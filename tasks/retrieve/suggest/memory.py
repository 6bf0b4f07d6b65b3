"""Memory: the moments of one domain as arrays, and how like each of them a situation is."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tasks.induce.recurrence import Moment, Situation, Target
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import PageOutline
from tasks.models.protocols import Vectors

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
# How like a situation a moment is: of the states' marks, the tasks, the actions before; whether the page
# lacks what was acted on next, how much of its words the task says, and how much its own task alone said.
FEATURES = ("state", "task", "before", "absent", "said", "said_by_its_task")
_BEFORE = 3
_NONE = -1
Thing = TypeVar("Thing")
_WORD = re.compile(r"[a-z]+")
_ENDINGS = ("ing", "ed", "es", "s")
_LEAST_STEM = 3
_LEAST_RARITY = 0.01
_PLAIN_WORDS = "a all and as at by for from in is it its me my of on that the this to with"
_PLAIN = frozenset(_PLAIN_WORDS.split())


class _Ids(dict[Thing, int]):
    """Numbers things in the order in which they come."""

    def __missing__(self, thing: Thing) -> int:
        self[thing] = len(self)
        return self[thing]


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
        self._word: _Ids[str] = _Ids()
        self._vectors: list[Vectors] = []
        self._tasks_of: list[frozenset[str]] = []  # the words of each task text
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
        for moment in moments:
            self._add(moment, vector)

    def _add(self, moment: Moment, vector: Vectors) -> None:
        place, situation = len(self), moment.situation
        task = self._task[situation.task]
        if task == len(self._vectors):
            self._vectors.append(vector)
            self._tasks_of.append(stems(situation.task))
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

    def _add_words(self, place: int, after: Sequence[Target], task: frozenset[str]) -> None:
        for target in after:
            words = stems(target[2] if target[2] is not None else target[0].replace("_", " "))
            for word in sorted(words):
                self._said_moment.append(place)
                self._said_word.append(self._word[word])
                self._said_share.append(1 / len(words))
                self._said_own.append(word in task)

    @property
    def pairs(self) -> tuple[Places, Places]:
        """The moments, and for each a skill that did what was done next."""
        return _array(self._pair_moment), _array(self._pair_skill)

    def of_task(self, task_id: str) -> npt.NDArray[np.bool_]:
        """Return which moments are of a task."""
        number = self._task_ids.get(task_id, _NONE)
        return np.asarray(_array(self._task_id) == number)

    def features(self, situation: Situation, vector: Vectors) -> Numbers:
        """Return how like a situation each moment is, shape `(moments, FEATURES)`.

        Args:
            situation: The task, the state and the actions before.
            vector: Of the task, as `add` took them.
        """
        n = len(self)
        tasks = np.stack(self._vectors) @ vector if n else np.zeros(0)
        said, by_its_task = self._said(stems(situation.task))
        columns = [
            self._states(situation.marks), tasks[_array(self._of_moment)], self._agree(situation.before),
            self._absent(situation.page), said, by_its_task,
        ]  # fmt: skip
        return np.stack(columns, axis=1).astype(np.float64)

    def _states(self, marks: frozenset[str]) -> Numbers:
        """Return the weighed Jaccard index of the marks of each moment and of a state."""
        n = len(self)
        rarity = self._rarities()
        mass = np.array([rarity[list(own)].sum() for own in self._sizes])
        known = [self._mark[mark] for mark in sorted(marks) if mark in self._mark]
        shared = np.zeros(n)
        for mark in known:
            shared[_array(self._marks[mark])] += rarity[mark]
        unknown = (len(marks) - len(known)) * np.log(2 * (n + 1))
        return np.asarray(shared / (rarity[known].sum() + unknown + mass - shared + 1e-9))

    def _rarities(self) -> Numbers:
        counts = np.array([len(self._marks[mark]) for mark in range(len(self._mark))], dtype=np.float64)
        return np.asarray(np.maximum(np.log((len(self) + 1) / (counts + 0.5)), _LEAST_RARITY))

    def _agree(self, before: Sequence[Target]) -> Numbers:
        """Return how many of the last actions are the same, from the last one back."""
        own = [self._target.get(target, _NONE - 1) for target in reversed(before)][:_BEFORE]
        own += [_NONE] * (_BEFORE - len(own))
        alike = _array(self._before).reshape(-1, _BEFORE) == np.array(own)
        agreed = np.cumprod(alike, axis=1)
        # Nothing before on both sides tells that both have begun, once.
        begun = np.array(own) == _NONE
        return np.asarray((agreed * ~begun).sum(axis=1) + (agreed * begun).any(axis=1))

    def _absent(self, page: PageOutline | None) -> Numbers:
        if page is None:
            return np.zeros(len(self))
        gone = [role is not None and not page.shows(role, label or "") for _, role, label in self._target]
        first = _array(self._first)
        return np.where(first >= 0, np.array([*gone, False], dtype=np.float64)[first], 0.0)

    def _said(self, task: frozenset[str]) -> tuple[Numbers, Numbers]:
        n = len(self)
        counts = np.zeros(len(self._word))
        for known in self._tasks_of:
            counts[[self._word[each] for each in known if each in self._word]] += 1
        rarity = np.maximum(np.log((len(self._tasks_of) + 1) / (counts + 0.5)), 0)
        here = np.array([each in task for each in self._word], dtype=bool)
        moment, word = _array(self._said_moment), _array(self._said_word)
        mass = rarity[word] * np.array(self._said_share)
        own = np.array(self._said_own, dtype=bool)
        said = np.bincount(moment, mass * here[word], n).astype(np.float64)
        return said, np.bincount(moment, mass * (own & ~here[word]), n).astype(np.float64)


def _array(values: array[int]) -> Places:
    return np.frombuffer(values, dtype=np.int64).copy() if len(values) else np.zeros(0, dtype=np.int64)


def stems(text: str) -> frozenset[str]:
    """Return the words of a text that say something, without their endings."""
    return frozenset(_stem(word) for word in _WORD.findall(text.lower()) if word not in _PLAIN)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word[: -len(ending)]
    return word


def shows_all(body: Body, page: PageOutline | None) -> bool:
    """Tell whether a page shows every element that a skill's caller must give."""
    return page is None or all(
        action.role is None
        or not isinstance(action.source(ELEMENT), Arg)
        or page.shows(action.role, action.target or "")
        for action in body
    )
