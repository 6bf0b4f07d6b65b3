"""Ranking: orders the rows that fit a step, by the step in the context of its whole task.

A conditional logit (McFadden, 1974) over features of a row and a step, with weights of `fitted`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.retrieve.compose.decompose.draft import DraftStep
from tasks.retrieve.compose.decompose.matches import MOST, Matcher, Matches
from tasks.retrieve.compose.fitted import fitted
from tasks.retrieve.routing.search import RowFacts
from tasks.retrieve.routing.terms import function_terms, term_counts

FEATURES = (
    "words", "root", "cosine", "both", "sought", "task_words", "task_cosine", "lead_words", "lead_cosine",
    "elsewhere", "named", "named_in_task", "named_elsewhere", "category", "length",
)  # fmt: skip
_FURTHER = 10  # rows that fit a step with what leads to it, or what it seeks, and not its own words
_NEAR = 10  # best rows among which a category is counted
_COMMON = "mcp server servers mcpserver tool tools api ai agent skill python typescript client official"
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepRanking:
    """The rows that fit a step, best first, with their scores and features, shape `(rows, features)`."""

    rows: tuple[int, ...]
    scores: Scores
    features: Scores

    def shares(self) -> Scores:
        """Return the probability of each row that it serves the step, given that one of them does."""
        likely = np.exp(self.scores - self.scores.max()) if len(self.scores) else self.scores
        return np.asarray(likely / likely.sum()) if len(likely) else likely


class StepRanker:
    """Ranks rows for the steps of one task.

    Args:
        facts: Returns what is held of rows.
        matcher: Scores them for texts.
        weights: Of `FEATURES`; None: the packaged ones.
    """

    def __init__(
        self,
        facts: Callable[[Sequence[int]], list[RowFacts]],
        matcher: Matcher,
        weights: Scores | None = None,
    ) -> None:
        self._facts, self._matcher = facts, matcher
        self._weights = packaged_weights() if weights is None else weights

    def rank(self, task: str, steps: Sequence[DraftStep], sought: Vectors) -> list[StepRanking]:
        """Return the ranking of each step.

        Args:
            task: The task that the steps are of.
            steps: In the order in which the task tells them.
            sought: What each seeks among the vectors of rows, shape `(steps, dimension)`.
        """
        if not steps:
            return []
        leads = [
            f"{lead} {step.text}".strip() for lead, step in zip(leading(task, steps), steps, strict=True)
        ]
        whole, *found = self._matcher.find_all([task, *(step.text for step in steps), *leads])
        own, led = found[: len(steps)], found[len(steps) :]
        near = self._matcher.router.nearness(sought)
        words = [set(term_counts(step.text)) for step in steps]
        rankings = []
        for k in range(len(steps)):
            rows = self._pool(own[k], led[k], near[k])
            others = [m for j, m in enumerate(own) if j != k]
            told = _Told(
                words[k], set(term_counts(task)), set().union(*words[:k], *words[k + 1 :]) - words[k]
            )
            facts = self._facts(rows)
            columns = [*_fits(rows, own[k], led[k], whole, near[k], others), *self._names(facts, told)]
            columns += [_shares(facts), np.log1p([fact.n_tokens for fact in facts])]
            rankings.append(self._ranking(rows, np.stack(columns, axis=1).astype(np.float64)))
        return rankings

    def _pool(self, own: Matches, led: Matches, near: Vectors) -> list[int]:
        further = [*led.rows[:_FURTHER].tolist(), *self._matcher.best_of(near, _FURTHER).tolist()]
        return list(dict.fromkeys([*own.rows[:MOST].tolist(), *further]))

    def _ranking(self, rows: Sequence[int], features: Scores) -> StepRanking:
        scores = features @ self._weights
        order = np.argsort(-scores, kind="stable")
        return StepRanking(tuple(rows[i] for i in order), scores[order], features[order])

    def _names(self, facts: Sequence[RowFacts], told: _Told) -> list[Scores]:
        """Return the shares of each row's name that stand in the step, in the task, in other steps alone."""
        names = [name_terms(fact) for fact in facts]
        every = sorted(set().union(*names))
        rarity = dict(zip(every, self._matcher.router.rarities(every).tolist(), strict=True))
        weighed = [{term: rarity[term] for term in name} for name in names]

        def share(among: set[int]) -> Scores:
            held = (sum(w for term, w in name.items() if term in among) for name in weighed)
            whole = (sum(name.values()) or 1.0 for name in weighed)
            return np.array([a / b for a, b in zip(held, whole, strict=True)])

        return [share(told.step), share(told.task), share(told.others)]


@dataclass(frozen=True, slots=True)
class _Told:
    """The terms of a step, of its task, and of its other steps alone."""

    step: set[int]
    task: set[int]
    others: set[int]


def leading(task: str, steps: Sequence[DraftStep]) -> list[str]:
    """Return for each step what stands before it and in no step, back to the end of the one before."""
    found, end = [], 0
    for step in steps:
        start = step.spans[0][0]
        found.append(" ".join(task[end:start].split()) if start > end else "")
        end = max(end, step.spans[-1][1])
    return found


def name_terms(fact: RowFacts) -> frozenset[int]:
    """Return the terms that tell a row's name and the end of its id from others."""
    return frozenset(term_counts(f"{fact.name} {fact.doc_id.rpartition('/')[2]}")) - _common_terms()


@functools.cache
def _common_terms() -> frozenset[int]:
    return frozenset(term_counts(_COMMON)) | function_terms()


def _fits(
    rows: Sequence[int], own: Matches, led: Matches, whole: Matches, near: Vectors, others: Sequence[Matches]
) -> list[npt.NDArray[np.floating[Any]]]:
    """Return how rows fit the step, the task, the step with what leads to it, and better another step."""
    at = list(rows)
    words = own.lexical[at].astype(np.float64)
    cosine = own.cosine[at].astype(np.float64)
    best = np.max([m.lexical[at] for m in others], axis=0) if others else np.zeros(len(at))
    return [
        words, np.sqrt(np.maximum(words, 0)), cosine, np.minimum(words, 2 * cosine), near[at],
        whole.lexical[at], whole.cosine[at], led.lexical[at], led.cosine[at], np.maximum(best - words, 0),
    ]  # fmt: skip


def _shares(facts: Sequence[RowFacts]) -> Scores:
    """Return the share of the best rows that are of each row's category."""
    counted = Counter(fact.category for fact in facts[:_NEAR])
    return np.array([counted[fact.category] / _NEAR for fact in facts])


def packaged_weights() -> Scores:
    """Return the packaged weights of `FEATURES`."""
    held = fitted()["ranking"]
    return np.array([held[name] for name in FEATURES])
