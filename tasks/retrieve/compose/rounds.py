"""Rounds of skill-aware decomposition: a task is cut again, by what is served (SkillWeaver, section 4.4).

Algorithm 1, with three more ends: a draft without steps, one that undoes the last round, and a cycle. For a
model that knows how likely each number of steps is, a conditional logit over features of drafts tells which
number the hinted rows speak for (`chosen_count`), with weights of `ranking.fitted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tasks.retrieve.compose.drafts import Draft, DraftStep
from tasks.retrieve.compose.ranking import NEAR, Matcher, fitted

HINTS = 15  # section 6
CONVERGED = 0.6  # Jaccard of two rounds' hints above which nothing is asked again
FEEDBACK_FEATURES = ("likely", "steps", "mean", "least", "weak", "same", "shared", "beyond")
_WEAK = 4.0  # standard deviations; a step whose best hint scores less is served badly
_TOP = 3  # best hints of two steps that are compared
_SCALE = 10.0
_SMALLEST = 0.35  # share of a score that is left of it in the smallest index
_LARGE = 20.0  # root of the rows from which an index is like the one that the weights were fitted on
Scores = npt.NDArray[np.float64]


class Decomposer(Protocol):
    """Takes a task apart into steps (SkillWeaver, section 4.1)."""

    @property
    def name(self) -> str:
        """The name that a plan tells: `local`, or `llm:` and the model's."""

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the draft of a task.

        `hints`: rows of the index that may serve (equation 5); None in the first round.
        """


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the draft's step texts, the hints that they found, and their Jaccard with those before."""

    steps: tuple[str, ...]
    hints: tuple[int, ...]
    jaccard: float | None


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The last draft, every round up to it, and whether the rounds converged."""

    draft: Draft
    rounds: tuple[Round, ...]
    converged: bool


def decompose(
    task: str, decomposer: Decomposer, matcher: Matcher, *, rounds: int = 1, hints: int = HINTS
) -> Decomposition:
    """Return what algorithm 1 makes of a task.

    `rounds` is how often the task is drafted again at most (T), at least 0. `hints` is how many rows one
    round shows (H), at least 1.
    """
    draft = decomposer.decompose(task, None, matcher)
    kept = [_round(task, draft, matcher, hints, None)]
    for _ in range(rounds):
        before = kept[-1]
        if before.jaccard is not None and before.jaccard > CONVERGED:
            return Decomposition(draft, tuple(kept), converged=True)
        again = decomposer.decompose(task, before.hints, matcher)
        kept.append(_round(task, again, matcher, hints, before.hints))
        if draft.steps and not again.steps:
            return Decomposition(draft, tuple(kept), converged=False)
        earlier = [one.steps for one in kept[:-1]]
        same, cycle = kept[-1].steps == earlier[-1], kept[-1].steps in earlier[:-1]
        draft = draft if cycle else again
        if same or cycle:
            return Decomposition(draft, tuple(kept), converged=same)
    return Decomposition(draft, tuple(kept), converged=(kept[-1].jaccard or 0.0) > CONVERGED)


def _round(task: str, draft: Draft, matcher: Matcher, most: int, before: tuple[int, ...] | None) -> Round:
    steps = draft.steps or (DraftStep(task, ((0, len(task)),)),)
    found = matcher.hints(steps, most)
    return Round(
        tuple(step.text for step in draft.steps),
        found,
        None if before is None else jaccard(set(found), set(before)),
    )


def jaccard(one: set[int], other: set[int]) -> float:
    """Return the share of two sets' union that both hold; 1 of two empty ones."""
    return len(one & other) / len(one | other) if one | other else 1.0


def chosen_count(drafts: Mapping[int, Draft], hints: Sequence[int], matcher: Matcher) -> int:
    """Return the number of steps whose draft the hints speak for.

    `drafts`: by their number of steps, at least one. `hints`: rows that may serve (algorithm 1).
    """
    counts = sorted(drafts, key=lambda n: (-drafts[n].certainty, n))
    if not hints or len(counts) < 2:
        return counts[0]
    matcher.find([step for draft in drafts.values() for step in draft.steps])
    weights = np.array([fitted()["feedback"][name] for name in FEEDBACK_FEATURES])
    scores = [float(draft_features(drafts[n], hints, matcher) @ weights) for n in counts]
    return counts[int(np.argmax(scores))]


def draft_features(draft: Draft, hints: Sequence[int], matcher: Matcher) -> Scores:
    """Return `FEEDBACK_FEATURES` of a draft: how likely it is, its size, how well its steps are served.

    `beyond` is how many of the services that the task names are more than it has steps.
    """
    likely = float(np.log(max(draft.certainty, 1e-6)))
    beyond = float(max(0, len(matcher.services) - len(draft.steps)))
    if not draft.steps:
        return np.array([likely, *(0.0 for _ in FEEDBACK_FEATURES[2:]), beyond])
    rows = list(hints)
    scores = np.stack([
        found.words[rows] + NEAR * found.near[rows]
        for found in matcher.find(draft.steps)
    ])  # fmt: skip
    # No score of a small index is larger than about the root of its rows.
    scores /= min(1.0, max(_SMALLEST, matcher.router.rows**0.5 / _LARGE))
    best, order = scores.max(axis=1), np.argsort(-scores, axis=1, kind="stable")
    # Steps that nothing serves have nothing in common.
    beside = [(order[i], order[j]) for i, j in pairwise(range(len(best))) if min(best[i], best[j]) >= _WEAK]
    return np.array([
        likely, len(draft.steps), best.mean() / _SCALE, best.min() / _SCALE, float((best < _WEAK).sum()),
        float(sum(a[0] == b[0] for a, b in beside)),
        float(sum(bool(set(a[:_TOP].tolist()) & set(b[:_TOP].tolist())) for a, b in beside)), beyond,
    ])  # fmt: skip
