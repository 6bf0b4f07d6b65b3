"""Methods of suggesting skills: the default, SGDR's equations 1 and 2, and what they are measured beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from tasks.induce.skills.actions import Arg, Body
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import PageOutline
from tasks.induce.windows.recurrence import Target
from tasks.models.protocols import Vectors
from tasks.retrieve.baselines.skillpager import mmr_order
from tasks.retrieve.suggest.offered import Offered

# What counts in the default's score; README.md in this folder says how it was chosen.
_TASK, _STATE, _BEFORE, _SUPPORT = 0.25, 0.75, 0.1, 0.05


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
    seen, None where the domain is one of tools. Skills that come from the task `task_id` alone are not
    offered.
    """

    task: Vectors
    state: Vectors
    start: Vectors
    before: Target | None = None
    page: PageOutline | None = None
    task_id: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class SgdrSetting:
    """SGDR's numbers: `alpha` weighs the task, `relevance_weight` is MMR's lambda, None: no MMR."""

    alpha: float = 0.5
    relevance_weight: float | None = 0.7
    static: bool = False

    def candidates(self, k: int) -> int:
        """Return M, which the paper leaves open: three times k, at least 20, as its release has it."""
        return max(3 * k, 20)


Method = Callable[[Offered, SkillQuestion, int], list[Offer]]


def default(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    """Return the skills that were used in states most like this one.

    A use counts by the cosine of its state and whether the action before it was the same; a skill by the use
    that counts most, the cosine of its description to the task, and the number of tasks that did it. Skills
    whose caller would have to give an element that the page does not show are left out.
    """
    support = offered.support(asked.task_id)
    if not (support > 0).any():
        return []
    uses = offered.uses()
    near = _STATE * (offered.states() @ asked.state)[uses.state].astype(np.float64)
    near += _BEFORE * (uses.before == offered.number_of_target(asked.before))
    near[uses.task == offered.number_of_task(asked.task_id)] = -np.inf
    of_use = np.maximum.reduceat(near, uses.first)
    of_task = _TASK * (offered.vectors() @ asked.task).astype(np.float64)
    of_support = _SUPPORT * np.log1p(support)
    scores = of_use + of_task + of_support
    fitting = (
        Offer(
            n,
            float(scores[n]),
            {"use": float(of_use[n]), "task": float(of_task[n]), "support": float(of_support[n])},
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
