"""Candidates: the served rows for each step of a draft, ranked, with the first one's confidence.

A step for which nothing served fits is a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from storage.lance.served import Licences
from tasks.retrieve.compose.dependencies import PlannedTask
from tasks.retrieve.compose.drafts import DraftStep, told_order
from tasks.retrieve.compose.ranking import (
    NEAR,
    RANKING_FEATURES,
    Matcher,
    StepRanker,
    StepRanking,
    confidence,
    fitted,
)
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import Searcher, provenance

FOLDED = 3  # rows that are looked at for one rank, because copies take none
POOL = 10  # candidates of a step that compatibility may put in another order
RERANKED = 10  # candidates of a step that a reranker is shown (SkillWeaver, appendix K)
_BY_TEXT = np.array([{"words": 1.0, "sought": NEAR}.get(name, 0.0) for name in RANKING_FEATURES])
Found = tuple[dict[str, Any], Ranked]
# Takes a step's text and at most `RERANKED` rows; returns the places of all rows, the best first.
StepReranker = Callable[[str, Sequence[Mapping[str, Any]]], list[int]]


@dataclass(frozen=True, slots=True)
class StepCandidates:
    """A step and its rows, best first: its text, its needs, and the `confidence` of the first row.

    `needs` are the places of the steps that it depends on directly. A `gap` is a step that nothing served
    fits: nothing is chosen for it, so that no step after it is compared with its rows.
    """

    text: str
    rows: Sequence[Found]
    needs: frozenset[int] = frozenset()
    gap: bool = False
    confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class CandidateFinder:
    """Finds candidates for the steps of one task: where rows are, and what may be shown of them.

    `alpha` weighs relevance against compatibility with the steps before (`select`); without `context` a
    step's rows are ranked by its own words and vector alone.
    """

    searcher: Searcher
    matcher: Matcher
    licences: Licences
    failed: set[str]
    k: int
    alpha: float = 1.0
    context: bool = True
    reranker: StepReranker | None = None

    def find(self, task: str, steps: Sequence[DraftStep], plan: PlannedTask) -> list[StepCandidates]:
        """Return the candidates of each step, in the order of `steps`."""
        told = told_order(steps)
        ranked = StepRanker(self.matcher, None if self.context else _BY_TEXT)
        rankings = dict(zip(told, ranked.rank(task, [steps[k] for k in told]), strict=True))
        rows = self._rows([rankings[k] for k in range(len(steps))])
        found = []
        for at, step in enumerate(steps):
            gap = self._sure(rankings[at]) < fitted()["gap"]["least"]
            if self.reranker is not None and not gap:
                rows[at] = _reranked(self.reranker, step.text, rows[at])
            needs = frozenset(d.before for d in plan.dependencies if d.after == at)
            found.append(StepCandidates(step.text, rows[at], needs, gap))
        chosen = select(found, plan.order, self.alpha)
        return [
            replace(step, rows=own, confidence=self._sure(rankings[at], own[0][0]["doc_id"] if own else None))
            for at, (step, own) in enumerate(zip(found, chosen, strict=True))
        ]

    def _sure(self, ranking: StepRanking, doc_id: str | None = None) -> float:
        """Return the confidence of a row of a ranking, by its id; of the first without one."""
        at = self.searcher.ids(ranking.rows).index(doc_id) if doc_id and ranking.rows else 0
        return confidence(ranking, at)

    def _rows(self, rankings: Sequence[StepRanking]) -> list[list[Found]]:
        pool = max(self.k, POOL)
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


def _reranked(reranker: StepReranker, step: str, found: list[Found]) -> list[Found]:
    """Return rows in the reranker's order, with the scores that the places had."""
    order = reranker(step, [row for row, _ in found[:RERANKED]])
    moved = [found[place] for place in order]
    scores = [ranked.score for _, ranked in found]
    best = [(row, replace(ranked, score=s)) for (row, ranked), s in zip(moved, scores, strict=False)]
    return [*best, *found[RERANKED:]]


def select(steps: Sequence[StepCandidates], order: Sequence[int], alpha: float) -> list[list[Found]]:
    """Return each step's rows, best first, with `relevance` and `compatibility`, both in [0, 1].

    SkillWeaver's equation 4: a row's score is `alpha * relevance + (1 - alpha) * compatibility`. Steps are
    decided one after another in `order`. The compatibility is the mean over what was chosen for the steps
    that a step needs; if it needs none, for all steps before it. It is None where nothing was chosen before:
    relevance alone decides there. Of equal scores the first given is first. Rows after the tenth keep their
    order. With alpha 1, the default, relevance alone decides, and `compatibility` is None: of 188 known steps
    of 60 hand-written requests over 1,348 servers no other value puts more right servers first. The paper's
    is 0.5.
    """
    near = [relevances([found.score for _, found in step.rows]) for step in steps]
    if alpha == 1:
        return [
            [({**row, "relevance": share, "compatibility": None}, found)
             for (row, found), share in zip(step.rows, shares, strict=True)]
            for step, shares in zip(steps, near, strict=True)
        ]  # fmt: skip
    from tasks.retrieve.compose.compatibility import Used, mean_compatibility, used  # noqa: PLC0415 (rare)

    chosen: dict[int, Used] = {}
    found_for: list[list[Found]] = [[] for _ in steps]
    for place in order:
        step = steps[place]
        before = [chosen[at] for at in sorted(step.needs or chosen) if at in chosen]
        uses = [
            used(row["name"], row["description"] or "", row["category"], step.text) for row, _ in step.rows
        ]
        fits = [mean_compatibility(before, use) for use in uses]
        best = _best_first(near[place], fits, alpha)
        if best and not step.gap:
            chosen[place] = uses[best[0]]
        found_for[place] = [
            ({**row, "relevance": near[place][at], "compatibility": fits[at]}, found)
            for at in best
            for row, found in [step.rows[at]]
        ]
    return found_for


def _best_first(near: Sequence[float], fits: Sequence[float | None], alpha: float) -> list[int]:
    places = list(range(len(near)))
    if None in fits:
        return places
    scores = [alpha * a + (1 - alpha) * (b or 0.0) for a, b in zip(near, fits, strict=True)]
    return [*sorted(places[:POOL], key=lambda at: -scores[at]), *places[POOL:]]


def relevances(scores: Sequence[float]) -> list[float]:
    """Return scores as shares of the highest, in [0, 1]; one below 0 becomes 0.

    If none is above 0, the highest is 1 and the others are 0.
    """
    best = max(scores, default=0.0)
    if best <= 0:
        return [float(score == best) for score in scores]
    return [max(0.0, score / best) for score in scores]
