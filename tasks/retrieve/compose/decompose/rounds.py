"""Rounds of skill-aware decomposition: a task is drafted again, by what is served (SkillWeaver, section 4.4).

Algorithm 1, with three more ends: a draft without steps, one that undoes the last round, and a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasks.retrieve.compose.decompose.draft import Decomposer, Draft
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep

HINTS = 15  # section 6
CONVERGED = 0.6  # Jaccard of two rounds' hints above which nothing is asked again


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

    Args:
        task: What is asked for.
        decomposer: Drafts.
        matcher: Finds the hints.
        rounds: How often the task is drafted again at most (T), at least 0.
        hints: How many rows one round shows (H), at least 1.
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
