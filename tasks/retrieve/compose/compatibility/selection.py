"""Selection: what serves each step of a plan, by relevance to it and compatibility with the steps before.

SkillWeaver's equation 4. The paper's alpha is 0.5; with 1 relevance alone decides, which is the default: of
188 known steps of 60 hand-written requests over 1,348 servers no other value puts more right servers first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.retrieve.compose.compatibility.row_pairs import Used, mean_compatibility, used
from tasks.retrieve.routing.router import Ranked

POOL = 10  # candidates of a step that compatibility may put in another order
Found = tuple[dict[str, Any], Ranked]


@dataclass(frozen=True, slots=True)
class StepCandidates:
    """A step as selection takes it: its text, its rows, most relevant first, and its needs.

    `needs` are the places of the steps that it depends on directly. Of a `gap` nothing is chosen, so that
    no step after it is compared with its rows.
    """

    text: str
    rows: Sequence[Found]
    needs: frozenset[int] = frozenset()
    gap: bool = False


def select(steps: Sequence[StepCandidates], order: Sequence[int], alpha: float) -> list[list[Found]]:
    """Return each step's rows, best first, with `relevance` and `compatibility`, both in [0, 1].

    A row's score is `alpha * relevance + (1 - alpha) * compatibility`. Steps are decided one after another
    in `order`. The compatibility is the mean over what was chosen for the steps that a step needs; if it
    needs none, for all steps before it. It is None where nothing was chosen before: relevance alone decides
    there. Of equal scores the first given is first. Rows after the tenth keep their order.
    """
    chosen: dict[int, Used] = {}
    selected: list[list[Found]] = [[] for _ in steps]
    for place in order:
        step = steps[place]
        before = [chosen[at] for at in sorted(step.needs or chosen) if at in chosen]
        uses = [_used(row, step.text) for row, _ in step.rows]
        fits = [mean_compatibility(before, use) for use in uses]
        near = relevances([found.score for _, found in step.rows])
        best = _best_first(near, fits, alpha)
        if best and not step.gap:
            chosen[place] = uses[best[0]]
        selected[place] = [
            ({**row, "relevance": near[at], "compatibility": fits[at]}, found)
            for at in best
            for row, found in [step.rows[at]]
        ]
    return selected


def _used(row: Mapping[str, Any], step: str) -> Used:
    return used(row["name"], row["description"] or "", row["category"], step)


def _best_first(near: Sequence[float], fits: Sequence[float | None], alpha: float) -> list[int]:
    """Return the places of a step's rows, best first; with alpha 1 as they are given."""
    places = list(range(len(near)))
    if alpha == 1 or None in fits:
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
