"""Candidates: the served rows for each step of a draft, ranked, with the first one's confidence.

A step for which nothing served fits is a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from storage.served import Licences
from tasks.retrieve.compose.compatibility.selection import POOL, Found, StepCandidates, select
from tasks.retrieve.compose.confidence import confidence
from tasks.retrieve.compose.decompose.fitted import fitted
from tasks.retrieve.compose.decompose.matches import NEAR, Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep
from tasks.retrieve.compose.options import ComposeOptions
from tasks.retrieve.compose.plan import PlannedTask
from tasks.retrieve.compose.protocol import RERANKED, StepReranker
from tasks.retrieve.compose.ranking import FEATURES, StepRanker, StepRanking
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import Searcher, provenance

FOLDED = 3  # rows that are looked at for one rank, because copies take none
_BY_TEXT = np.array([{"words": 1.0, "sought": NEAR}.get(name, 0.0) for name in FEATURES])


@dataclass(frozen=True, slots=True)
class ServedStep:
    """The candidates of a step, best first; `confidence` of the first; whether nothing served fits."""

    rows: Sequence[Found]
    confidence: float
    gap: bool


@dataclass(frozen=True, slots=True)
class CandidateFinder:
    """Finds candidates for the steps of one task: where rows are, and what may be shown of them."""

    searcher: Searcher
    matcher: Matcher
    licences: Licences
    failed: set[str]
    options: ComposeOptions
    reranker: StepReranker | None = None

    def find(self, task: str, steps: Sequence[DraftStep], plan: PlannedTask) -> list[ServedStep]:
        """Return the candidates of each step, in the order of `steps`."""
        told = sorted(range(len(steps)), key=lambda k: (steps[k].spans[0], k))
        ranker = StepRanker(self.searcher.facts, self.matcher, None if self.options.context else _BY_TEXT)
        rankings = dict(zip(told, ranker.rank(task, [steps[k] for k in told]), strict=True))
        in_order = [rankings[k] for k in range(len(steps))]
        sure = [self._sure(ranking) for ranking in in_order]
        gaps = [one < fitted()["gap"]["least"] for one in sure]
        found = self._rows(in_order)
        if self.reranker is not None:
            given = zip(steps, found, gaps, strict=True)
            found = [
                rows if gap else _reranked(self.reranker, task, step.text, rows) for step, rows, gap in given
            ]
        chosen = self._selected(steps, plan, found, gaps)
        return [
            ServedStep(rows, self._sure(ranking, rows[0][0]["doc_id"] if rows else None), gap)
            for ranking, rows, gap in zip(in_order, chosen, gaps, strict=True)
        ]

    def _sure(self, ranking: StepRanking, doc_id: str | None = None) -> float:
        """Return the confidence of a row of a ranking, by its id; of the first without one."""
        at = self.searcher.ids(ranking.rows).index(doc_id) if doc_id and ranking.rows else 0
        return confidence(ranking, at)

    def _rows(self, rankings: Sequence[StepRanking]) -> list[list[Found]]:
        """Return the best rows of rankings, copies folded, all read at once."""
        pool = max(self.options.k, POOL)
        kept = []
        for ranking in rankings:
            shares = dict(zip(ranking.rows, ranking.shares().tolist(), strict=True))
            groups = self.matcher.router.folded(ranking.rows[: FOLDED * pool])[:pool]
            kept.append([(shares[group[0]], group) for group in groups])
        places = list(dict.fromkeys(place for groups in kept for _, group in groups for place in group))
        read = dict(zip(places, map(self._shown, self.searcher.rows(places)), strict=True))
        return [
            [
                (
                    read[place],
                    Ranked(read[place]["doc_id"], share, {}, tuple(read[o]["doc_id"] for o in others)),
                )
                for share, (place, *others) in groups
            ]
            for groups in kept
        ]

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        classed = {**row, "licence_class": self.licences.class_of(row["licence"])}
        return {**classed, **provenance(classed, self.failed)}

    def _selected(
        self,
        steps: Sequence[DraftStep],
        plan: PlannedTask,
        found: Sequence[list[Found]],
        gaps: Sequence[bool],
    ) -> list[list[Found]]:
        """Return the rows of each step, best first by equation 4, with `relevance` and `compatibility`."""
        needs = [frozenset(d.before for d in plan.dependencies if d.after == at) for at in range(len(steps))]
        given = zip(steps, found, needs, gaps, strict=True)
        candidates = [StepCandidates(step.text, rows, own, gap=gap) for step, rows, own, gap in given]
        return select(candidates, plan.order, self.options.alpha)


def _reranked(reranker: StepReranker, task: str, step: str, found: list[Found]) -> list[Found]:
    """Return rows in the reranker's order, with the scores that the places had."""
    order = reranker.order(task, step, [row for row, _ in found[:RERANKED]])
    moved = [found[place] for place in order]
    scores = [ranked.score for _, ranked in found]
    best = [(row, replace(ranked, score=s)) for (row, ranked), s in zip(moved, scores, strict=False)]
    return [*best, *found[RERANKED:]]
