"""Methods of suggesting skills: SGDR's equations 1 and 2, and what they are measured beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasks.induce.windows.recurrence import Situation
from tasks.models.protocols import Vectors
from tasks.retrieve.baselines.skillpager import mmr_order
from tasks.retrieve.suggest.choose import Offer, choose
from tasks.retrieve.suggest.offered import Offered


@dataclass(frozen=True, slots=True)
class SkillQuestion:
    """One step at which skills are asked for.

    `task` is the vector of the task's text, shape `(384,)`; `state` sums up the state, `start` that in which
    the trajectory began; skills that come from the task `task_id` alone are not offered.
    """

    situation: Situation
    task: Vectors
    state: str
    start: str
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
    """Return the skills that most likely do what is to be done next (`choose`)."""
    own = offered.memory.of_task(asked.task_id)
    return choose(offered.memory, asked.situation, asked.task, k, left_out=own)


def sgdr(setting: SgdrSetting) -> Method:
    """Return SGDR's method: the M best by equation 1, reranked by equation 2."""

    def suggest(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
        support = offered.support(asked.task_id)
        held = np.flatnonzero(support > 0)
        if not len(held):
            return []
        vectors = offered.vectors()
        vectors = vectors if len(held) == len(vectors) else vectors[held]
        (state,) = offered.encoded([asked.start if setting.static else asked.state])
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
