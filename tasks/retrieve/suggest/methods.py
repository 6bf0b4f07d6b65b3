"""Methods of suggesting skills, what can be offered in one domain, and what stands beside the default.

The default is a conditional logit over uses (McFadden, 1974): README.md here says how it was fitted.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tasks.induce.skills.actions import Arg, Body
from tasks.induce.skills.windows import DecisionPoint, Target
from tasks.induce.skills.wording import described, page_named
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import PageOutline
from tasks.models.protocols import Vectors
from tasks.refine.text.words import WORD
from tasks.retrieve.baselines.skillpager import mmr_order

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
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
    """The numbers of skill, state, action before, task and its text of each use, those of skill 0 first.

    `first` is the place of the first use of each skill.
    """

    skill: Places
    state: Places
    before: Places
    task: Places
    text: Places
    first: Places


class Offered:
    """The skills of a domain by their number, as they are learned, trajectory by trajectory.

    `encode` returns unit vectors of texts, shape `(texts, 384)`. `descriptions`: of skills that are described
    already.
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
        self._text: _Numbers[str] = _Numbers()
        self._naming: defaultdict[str, list[int]] = defaultdict(list)  # skills by a word of their labels
        self._n_words = array("q")  # of each skill's labels
        self._columns = tuple(array("q") for _ in range(5))  # of uses: skill, state, before, task, text
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
        self._of_tasks: Vectors | None = None
        self._uses: SkillUses | None = None

    def learn(self, moments: Iterable[DecisionPoint]) -> None:
        """Add the moments of one trajectory."""
        self._forget_arrays()
        for moment in moments:
            for body in dict.fromkeys(moment.bodies):
                self._add(moment, body)

    def _add(self, moment: DecisionPoint, body: Body) -> None:
        skill, own = self._skill[body], self._skills_of[moment.task_id]
        if skill == len(self.skills):
            self.skills.append(body)
            self._supports.append(0)
            words = words_in(" ".join(action.target or "" for action in body))
            self._n_words.append(len(words))
            for word in words:
                self._naming[word].append(skill)
        self._supports[skill] += skill not in own
        own.add(skill)
        self._pages[skill][moment.page].add(moment.task_id)
        self._every_page[moment.page].add(moment.task_id)
        of_moment = self._state[moment.state], self._target[moment.before]
        numbers = skill, *of_moment, self._task[moment.task_id], self._text[moment.task]
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

    def tasks(self) -> Vectors:
        """Return the vectors of the texts of tasks in which skills were used, shape `(texts, 384)`."""
        if self._of_tasks is None:
            self._of_tasks = self._encoded(list(self._text))
        return self._of_tasks

    def said(self, task: str) -> Numbers:
        """Return the share of the words of each skill's labels that a task's text says, shape `(skills,)`."""
        found = np.zeros(len(self.skills))
        for word in words_in(task):
            found[self._naming.get(word, [])] += 1
        return found / np.maximum(self._n_words, 1)

    def _encoded(self, texts: Sequence[str]) -> Vectors:
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self._vectors |= dict(zip(new, self._encode(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def uses(self) -> SkillUses:
        """Return the uses of skills, each once."""
        if self._uses is None:
            columns = np.stack([np.frombuffer(column, dtype=np.int64) for column in self._columns], axis=1)
            skill, state, before, task, text = np.unique(columns, axis=0).T
            first = np.searchsorted(skill, np.arange(len(self.skills)))
            self._uses = SkillUses(skill, state, before, task, text, first)
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


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text in lower case."""
    return frozenset(WORD.findall(text.lower()))


# Of `use_features`, in their order: `tasks.train.suggested` fits them.
WEIGHTS = (7.73, 5.77, 3.32, 4.65)
_LONGER = -0.2  # of each action: shorter skills are usable more often, longer ones save more decisions
_LEAST = 1e-12  # a sum whose logarithm is told


@dataclass(frozen=True, slots=True)
class Offer:
    """A skill that is offered: its number, and its score, with the parts that it is made of."""

    skill: int
    score: float
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class SkillQuestion:
    """One step at which skills are asked for.

    `task`, `state` and `start` are the vectors of the task's text, of the state summed up, and of that in
    which the trajectory began, each of shape `(384,)`; `before` is the last action, `page` the page that is
    seen, None where the domain is one of tools, `text` the task's text. Skills that come from the task
    `task_id` alone are not offered.
    """

    task: Vectors
    state: Vectors
    start: Vectors
    before: Target | None = None
    page: PageOutline | None = None
    task_id: str = ""
    step: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class SgdrSetting:
    """SGDR's numbers: `alpha` weighs the task, `relevance_weight` is MMR's lambda, None: no MMR.

    `most` is M, the skills that MMR chooses of, which the paper leaves open; None: three times k, at least
    20, as its release has it.
    """

    alpha: float = 0.5
    relevance_weight: float | None = 0.7
    static: bool = False
    most: int | None = None

    def candidates(self, k: int) -> int:
        """Return M for so many skills that are offered."""
        return max(3 * k, 20) if self.most is None else self.most


Method = Callable[[Offered, SkillQuestion, int], list[Offer]]


def use_features(offered: Offered, asked: SkillQuestion) -> Numbers:
    """Return what speaks for the skill of each use, shape `(uses, 4)`.

    These are the cosines of its state and its task to those asked about, whether the action before it was the
    same as now (or neither has one), and the share of the words of its skill's labels that the task says.
    """
    uses = offered.uses()
    near, alike = offered.states() @ asked.state, offered.tasks() @ asked.task
    same = uses.before == offered.number_of_target(asked.before)
    return np.stack([near[uses.state], alike[uses.text], same, offered.said(asked.text)[uses.skill]], axis=1)


def default(
    offered: Offered, asked: SkillQuestion, k: int, weights: Sequence[float] = WEIGHTS
) -> list[Offer]:
    """Return the skills whose uses are most like this step.

    A use counts by `use_features`, 1 where all are 1, and a skill by the logarithm of the sum over its uses,
    those of the own task left out. Skills whose caller would have to give an element that the page does not
    show are not offered.
    """
    support = offered.support(asked.task_id)
    if not (support > 0).any():
        return []
    uses, (*of_likeness, of_said) = offered.uses(), weights
    features = use_features(offered, asked)
    counts = np.exp(features[:, :-1] @ of_likeness - sum(of_likeness))
    counts[uses.task == offered.number_of_task(asked.task_id)] = 0
    of_use = np.log(np.maximum(np.add.reduceat(counts, uses.first), _LEAST))
    said = of_said * (features[uses.first, -1] - 1)
    length = np.array([_LONGER * len(body) for body in offered.skills])
    scores = of_use + said + length
    fitting = (
        Offer(
            n,
            float(scores[n]),
            {"use": float(of_use[n]), "said": float(said[n]), "length": float(length[n])},
        )
        for n in np.argsort(-scores, kind="stable").tolist()
        if support[n] > 0 and shows_all(offered.skills[n], asked.page)
    )
    return list(islice(fitting, k))


def shows_all(body: Body, page: PageOutline | None) -> bool:
    """Tell whether a page shows every element that a skill's caller must give."""
    return page is None or all(
        action.role is None
        or not isinstance(action.source(ELEMENT), Arg)
        or page.shows(action.role, action.target or "")
        for action in body
    )


def sgdr(setting: SgdrSetting) -> Method:
    """Return SGDR's method: the M best by equation 1, reranked by equation 2."""

    def suggest(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
        support = offered.support(asked.task_id)
        held = np.flatnonzero(support > 0)
        if not len(held):
            return []
        vectors = offered.vectors()
        vectors = vectors if len(held) == len(vectors) else vectors[held]
        state = asked.start if setting.static else asked.state
        of_task, of_state = vectors @ asked.task, vectors @ state
        scores = setting.alpha * of_task + (1 - setting.alpha) * of_state

        def offer(place: int, score: float) -> Offer:
            parts = {"task": float(of_task[place]), "state": float(of_state[place])}
            return Offer(int(held[place]), score, parts)

        best = np.argsort(-scores, kind="stable")[: setting.candidates(k)]
        if setting.relevance_weight is None:
            return [offer(place, float(scores[place])) for place in best[:k].tolist()]
        order = mmr_order(
            scores[best].astype(np.float64), vectors[best].astype(np.float64),
            relevance_weight=setting.relevance_weight, stop_below=None,
        )  # fmt: skip
        return [offer(int(best[place]), value) for (place, value), _ in zip(order, range(k), strict=False)]

    return suggest


def popular(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    """Return the skills that most tasks share."""
    support = offered.support(asked.task_id)
    best = np.argsort(-support, kind="stable")[:k]
    return [Offer(int(skill), float(support[skill])) for skill in best if support[skill] > 0]


def random(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    """Return skills drawn by chance, the same for the same step."""
    held = np.flatnonzero(offered.support(asked.task_id) > 0)
    seed = [42, asked.step, *asked.task_id.encode()]
    return [Offer(int(skill), 0.0) for skill in np.random.default_rng(seed).permutation(held)[:k]]


METHODS: dict[str, Method] = {
    "default": default,
    "sgdr": sgdr(SgdrSetting()),
    "static": sgdr(SgdrSetting(static=True)),
    "popular": popular,
    "task": sgdr(SgdrSetting(alpha=1.0)),
    "state": sgdr(SgdrSetting(alpha=0.0)),
    "random": random,
}
