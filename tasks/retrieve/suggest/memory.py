"""Memory: the moments of one domain as arrays, and how like each of them a situation is."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tasks.induce.skills.actions import Arg, Body
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import PageOutline
from tasks.induce.windows.recurrence import Moment, Situation, Target
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.postings import function_terms, term_counts

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
# How like a situation a moment is: of the states' marks, the tasks, the actions before; whether the page
# lacks what was acted on next, how much of its words the task says, and how much its own task alone said.
FEATURES = ("state", "task", "before", "absent", "said", "said_by_its_task")
_BEFORE, _NEXT = 3, 2  # actions of a history, and of what was done next, that count
# The numbers of what each moment has: its task's text and id, its state, history, and what was acted on next.
_ROWS = ("text", "task", "state", "history", "first", "next", "then")
_NONE = -1
Thing = TypeVar("Thing")
_LEAST_RARITY = 0.01


class _Ids(dict[Thing, int]):
    """Numbers things in the order in which they come."""

    def __missing__(self, thing: Thing) -> int:
        self[thing] = len(self)
        return self[thing]


@dataclass(frozen=True, slots=True)
class _Arrays:
    """What is asked for at each step, made once until more is learned."""

    rows: Mapping[str, Places]  # of each moment, by `_ROWS`
    pairs: tuple[Places, Places]
    lengths: Places  # of skills
    vectors: Vectors  # of task texts
    rarity: Numbers  # of marks
    owner: Places  # the state of each mark of a state, and the mark
    marks: Places
    mass: Numbers  # the rarities of the marks of each state
    saying: Places  # of each word of a saying, as the three below
    word: Places
    telling: Numbers
    is_own: npt.NDArray[np.bool_]


class Memory:
    """Moments that skills were learned from, in the order in which they came.

    States, histories and what was acted on next recur: each is compared once, whichever moments it is of.
    `skills` are the bodies of skills by their number.
    """

    def __init__(self) -> None:
        self.skills: list[Body] = []
        self._skill: _Ids[Body] = _Ids()
        self._target: _Ids[Target] = _Ids()
        self._text: _Ids[str] = _Ids()  # of tasks
        self._task_id: _Ids[str] = _Ids()
        self._mark: _Ids[str] = _Ids()
        self._state: _Ids[frozenset[str]] = _Ids()
        self._history: _Ids[tuple[Target, ...]] = _Ids()
        self._saying: _Ids[tuple[Target | None, int]] = _Ids()  # what was acted on, and the task's text
        self._word: _Ids[int] = _Ids()
        self._vectors: list[Vectors] = []
        self._terms: list[frozenset[int]] = []  # of each task text
        self._rows = {name: array("q") for name in _ROWS}
        self._pairs = array("q"), array("q")
        self._seen: list[int] = []  # in how many moments each mark stands
        self._said = array("q"), array("q"), array("d"), array("b")  # saying, word, share, is of its own task

    def __len__(self) -> int:
        return len(self._rows["text"])

    def add(self, moments: Iterable[Moment], vector: Vectors) -> None:
        """Learn the moments of one trajectory; `vector` is that of its task, shape `(384,)`."""
        self.__dict__.pop("_arrays", None)
        for moment in moments:
            self._add(moment, vector)

    def _add(self, moment: Moment, vector: Vectors) -> None:
        place, situation = len(self), moment.situation
        text = self._text[situation.task]
        if text == len(self._vectors):
            self._vectors.append(vector)
            self._terms.append(telling_terms(situation.task))
        self._count(situation.marks)
        after = [*moment.after, None, None][:_NEXT]
        own = {
            "text": text, "task": self._task_id[moment.task_id], "state": self._state[situation.marks],
            "history": self._history[situation.before],
            "first": self._target[moment.after[0]] if moment.after else _NONE,
            "next": self._say(after[0], text), "then": self._say(after[1], text),
        }  # fmt: skip
        for name, number in own.items():
            self._rows[name].append(number)
        for body in dict.fromkeys(moment.bodies):
            number = self._skill[body]
            if number == len(self.skills):
                self.skills.append(body)
            self._pairs[0].append(place)
            self._pairs[1].append(number)

    def _count(self, marks: frozenset[str]) -> None:
        for mark in sorted(marks):
            number = self._mark[mark]
            if number == len(self._seen):
                self._seen.append(0)
            self._seen[number] += 1

    def _say(self, target: Target | None, text: int) -> int:
        """Return the number of what was acted on for a task, whose words are kept when it comes first."""
        known = len(self._saying)
        number = self._saying[target, text]
        if number == known and target is not None:
            words = telling_terms(target[2] if target[2] is not None else target[0].replace("_", " "))
            for word in sorted(words):
                sayings, own, shares, is_own = self._said
                sayings.append(number)
                own.append(self._word[word])
                shares.append(1 / len(words))
                is_own.append(word in self._terms[text])
        return number

    @functools.cached_property
    def _arrays(self) -> _Arrays:
        seen = np.array(self._seen, dtype=np.float64)
        rarity = np.maximum(np.log((len(self) + 1) / (seen + 0.5)), _LEAST_RARITY)
        owner = np.repeat(np.arange(len(self._state)), [len(marks) for marks in self._state])
        marks = np.array(
            [self._mark[mark] for state in self._state for mark in sorted(state)], dtype=np.int64
        )
        counts = np.zeros(len(self._word))
        for terms in self._terms:
            counts[[self._word[term] for term in terms if term in self._word]] += 1
        saying, word = _array(self._said[0]), _array(self._said[1])
        mass = np.bincount(owner, rarity[marks], len(self._state)).astype(np.float64)
        telling = np.maximum(np.log((len(self._terms) + 1) / (counts + 0.5)), 0)
        vectors = np.stack(self._vectors) if self._vectors else np.zeros((0, 1), dtype=np.float32)
        return _Arrays(
            {name: _array(column) for name, column in self._rows.items()},
            (_array(self._pairs[0]), _array(self._pairs[1])),
            np.array([len(body) for body in self.skills], dtype=np.int64), vectors, rarity,
            owner, marks, mass, saying, word,
            telling[word] * np.array(self._said[2]), np.array(self._said[3], dtype=bool),
        )  # fmt: skip

    @property
    def pairs(self) -> tuple[Places, Places]:
        """The moments, and for each a skill that did what was done next: two arrays of one length."""
        return self._arrays.pairs

    @property
    def lengths(self) -> Places:
        """The number of actions of each skill."""
        return self._arrays.lengths

    def number_of(self, body: Body) -> int:
        """Return the number of a skill that was learned."""
        return self._skill[body]

    def of_task(self, task_id: str) -> npt.NDArray[np.bool_]:
        """Return which moments are of a task."""
        return np.asarray(_array(self._rows["task"]) == self._task_id.get(task_id, _NONE))

    def features(self, situation: Situation, vector: Vectors) -> Numbers:
        """Return how like a situation each moment is, shape `(moments, FEATURES)`.

        Args:
            situation: The task, the state and the actions before.
            vector: Of the task, as `add` took them.
        """
        if not len(self):
            return np.zeros((0, len(FEATURES)))
        return np.stack(list(self._columns(situation, vector)), axis=1)

    def scores(self, situation: Situation, vector: Vectors, weights: Numbers) -> Numbers:
        """Return the sum of the weighed features of each moment, shape `(moments,)`."""
        found = np.zeros(len(self))
        if len(self):
            for weight, column in zip(weights, self._columns(situation, vector), strict=True):
                found += weight * column
        return found

    def _columns(self, situation: Situation, vector: Vectors) -> Iterator[Numbers]:
        """Yield the features in their order, each of shape `(moments,)`."""
        held, rows = self._arrays, self._arrays.rows
        yield self._states(situation.marks)[rows["state"]]
        yield (held.vectors @ vector).astype(np.float64)[rows["text"]]
        yield self._agree(situation.before)[rows["history"]]
        yield self._absent(situation.page)[rows["first"]]
        for values in self._words_of(telling_terms(situation.task)):
            yield values[rows["next"]] + values[rows["then"]]

    def _states(self, marks: frozenset[str]) -> Numbers:
        """Return the weighed Jaccard index of the marks of each known state and of another."""
        held = self._arrays
        here = np.zeros(len(self._mark), dtype=bool)
        known = [self._mark[mark] for mark in marks if mark in self._mark]
        here[known] = True
        shared = np.bincount(held.owner, held.rarity[held.marks] * here[held.marks], len(self._state))
        unknown = (len(marks) - len(known)) * np.log(2 * (len(self) + 1))
        return np.asarray(shared / (held.rarity[known].sum() + unknown + held.mass - shared + 1e-9))

    def _agree(self, before: Sequence[Target]) -> Numbers:
        """Return how many of the last actions of each known history are the same, from the last one back."""
        return np.array([_agreed(own, before) for own in self._history], dtype=np.float64)

    def _absent(self, page: PageOutline | None) -> Numbers:
        """Return which targets a page lacks; the last entry is for moments without one."""
        if page is None:
            return np.zeros(len(self._target) + 1)
        gone = [role is not None and not page.shows(role, label or "") for _, role, label in self._target]
        return np.array([*gone, False], dtype=np.float64)

    def _words_of(self, task: frozenset[int]) -> tuple[Numbers, Numbers]:
        """Return what a task says of the words of each saying, and what the saying's own task alone says."""
        held, n = self._arrays, len(self._saying)
        here = np.array([term in task for term in self._word], dtype=bool)[held.word]
        others = held.telling * (held.is_own & ~here)
        said = np.bincount(held.saying, held.telling * here, n).astype(np.float64)
        return said, np.bincount(held.saying, others, n).astype(np.float64)


def _agreed(own: Sequence[Target], before: Sequence[Target]) -> int:
    """Return how many of the last three actions agree; that nothing was done before counts as one."""
    agreed = 0
    for back in range(1, _BEFORE + 1):
        one, other = (given[-back] if len(given) >= back else None for given in (own, before))
        if one != other:
            return agreed
        agreed += 1
        if one is None:
            return agreed
    return agreed


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
