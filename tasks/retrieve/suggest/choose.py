"""Choose: the skills of which one most likely does what is to be done next, by moments like the situation.

A moment counts by a softmax over its features (a kernel whose weights are those of a conditional logit); the
skills offered are those that together cover the moments best (greedy maximum coverage; Nemhauser, Wolsey and
Fisher, "An analysis of approximations for maximizing submodular set functions", 1978), longer ones a little
more, as they save decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tasks.induce.windows.recurrence import Situation
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.memory import FEATURES, Memory, Numbers, shows_all

# Fitted by likelihood, and `task` raised by hand: README.md in this folder says on what, and how well.
WEIGHTS: Mapping[str, float] = {
    "state": 4.2, "task": 6.0, "before": 1.3, "absent": -2.3, "said": 1.0, "said_by_its_task": -0.25,
}  # fmt: skip
_MOST_MOMENTS = 2000
_SAVED = 0.1  # what an action saved counts, where 1 is that one of the skills is usable


@dataclass(frozen=True, slots=True)
class Offer:
    """A skill that is offered: its number in the memory, and its score, with the parts that it is made of.

    Of `choose` the score is what the skill adds to the chance that one fits.
    """

    skill: int
    score: float
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)


def choose(
    memory: Memory,
    situation: Situation,
    vector: Vectors,
    k: int = 5,
    *,
    left_out: npt.NDArray[np.bool_] | None = None,
    weights: Mapping[str, float] = WEIGHTS,
) -> list[Offer]:
    """Return at most k skills, best first.

    Args:
        memory: The moments of a domain.
        situation: What the agent was asked, sees and did.
        vector: Of the task, of the memory's encoder.
        k: How many at most.
        left_out: Moments that do not count, shape `(moments,)`.
        weights: Of `FEATURES`.
    """
    likely = _likely(memory, situation, vector, weights)
    if left_out is not None:
        likely[left_out] = 0
    moment, skill = memory.pairs
    near = _likeliest(likely)[moment]
    moment, skill = moment[near], skill[near]
    callable_now = [each for each in np.unique(skill) if shows_all(memory.skills[each], situation.page)]
    kept = np.isin(skill, callable_now)
    return _covering(likely, moment[kept], skill[kept], memory, k)


def _likeliest(likely: Numbers) -> npt.NDArray[np.bool_]:
    """Return which moments count at all: the likeliest ones; all others together count next to nothing."""
    if len(likely) <= _MOST_MOMENTS:
        return likely > 0
    least = np.partition(likely, -_MOST_MOMENTS)[-_MOST_MOMENTS]
    return np.asarray((likely >= least) & (likely > 0))


def _likely(memory: Memory, situation: Situation, vector: Vectors, weights: Mapping[str, float]) -> Numbers:
    if not len(memory):
        return np.zeros(0)
    scores = memory.scores(situation, vector, np.array([weights[name] for name in FEATURES]))
    likely = np.exp(scores - scores.max())
    return np.asarray(likely / likely.sum())


def _covering(
    likely: Numbers, moment: npt.NDArray[np.int64], skill: npt.NDArray[np.int64], memory: Memory, k: int
) -> list[Offer]:
    saves = memory.lengths - 1.0
    best, offers = np.full(len(likely), -1.0), list[Offer]()  # -1: no skill covers the moment yet
    while len(offers) < k and len(skill):
        covered = np.maximum(best[moment], 0)
        more = (best[moment] < 0) + _SAVED * np.maximum(0, saves[skill] - covered)
        gains = np.bincount(skill, likely[moment] * more, len(memory.skills))
        chosen = int(gains.argmax())
        if gains[chosen] <= 0:
            break
        offers.append(Offer(chosen, float(gains[chosen])))
        own = moment[skill == chosen]
        best[own] = np.maximum(best[own], saves[chosen])
    return offers
