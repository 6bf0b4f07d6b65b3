"""Compose: from a task to steps in an order in which they can be done, each with what serves it.

After SkillWeaver (section 4): decompose, retrieve, compose.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import WrongInput
from storage.served import require_licences
from tasks.retrieve.compose.decompose.draft import Decomposer, Draft
from tasks.retrieve.compose.decompose.local import LocalDecomposer
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.rounds import HINTS, Decomposition, decompose
from tasks.retrieve.compose.dependencies import condition_of, ordered
from tasks.retrieve.compose.left_out import left_out
from tasks.retrieve.compose.pages import require_pages, with_pages
from tasks.retrieve.compose.plan import PlannedTask
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import PROVENANCE, Filters, Searcher, provenance
from tasks.retrieve.served_index import ServedIndex, require_text

MOST_STEPS, CANDIDATES = 8, 5
LONGEST = 8_000  # characters; what is longer is a document, and no request
# Of the best row's score and its lead over the next, in standard deviations: the share of steps whose first
# row is right. A logistic regression on 1,152 steps of 440 hand-written requests with known servers (ten
# folds: AUROC .80); a lower bound, because of several equal servers not all were named.
_SLOPES, _OFFSET = (0.015, 0.256), -0.815
# A best score under this is a gap: of those steps 3 % have one, of the same steps without their servers 16 %.
GAP = 8.0
# No score of a small index is larger than about this times the root of its rows, which bounds the gap too.
_SMALL = 0.6


@dataclass(frozen=True, slots=True)
class ComposeOptions:
    """How a task is composed: candidates a step, steps at most, rounds with hints, hints a round, filters.

    `pages` is the budget of each step's page (`with_pages`); None makes no pages.
    """

    k: int = CANDIDATES
    max_steps: int = MOST_STEPS
    rounds: int = 1
    hints: int = HINTS
    explain: bool = False
    filters: Filters = field(default_factory=Filters)
    pages: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("max_steps", 1), ("rounds", 0), ("hints", 1)):
            if getattr(self, name) < least:
                option = f"--{name.replace('_', '-')}" if name != "k" else "-k"
                msg = f"{option} is {getattr(self, name)}: give at least {least}"
                raise WrongInput(msg)
        require_pages(self.pages)


def compose(
    index: ServedIndex,
    task: str,
    options: ComposeOptions | None = None,
    decomposer: Decomposer | None = None,
) -> dict[str, Any]:
    """Return the plan of a task, as the command prints it; by default the local decomposer takes it apart.

    Raises:
        WrongInput: The task is blank or no valid Unicode text, an option is out of its range, or nothing has
            what a filter asks for.
        StorageError: A table or the file of licences' classes is damaged or missing.
        NotPublished: Nothing is served.
    """
    started, chosen = time.perf_counter(), options or ComposeOptions()
    require_text("task", task)
    failed = index.failed_sources()
    now, plan = index.read(lambda now: _composed(now, task, chosen, failed, decomposer))
    if chosen.pages is not None:
        plan = with_pages(index, plan, chosen.pages)
    took = round((time.perf_counter() - started) * 1000, 3)
    return {**plan, "index_version": now.served.version, "took_ms": took}


def _composed(
    now: OpenVersion,
    task: str,
    options: ComposeOptions,
    failed: set[str],
    decomposer: Decomposer | None,
) -> dict[str, Any]:
    searcher = now.searcher()
    licences = require_licences(now.root)
    allowed = searcher.allowed(options.filters, licences)
    matcher = Matcher(searcher.router, allowed)
    local = decomposer or LocalDecomposer(now.encoder, most=options.max_steps)
    read = task[:LONGEST]
    found = decompose(read, local, matcher, rounds=options.rounds, hints=options.hints)
    plan = ordered(read, found.draft.steps)
    served = []
    for step in found.draft.steps:
        ranked = searcher.search(step.text, k=options.k, filters=options.filters, licences=licences)
        classed = ({**row, "licence_class": licences.class_of(row["licence"])} for row, _ in ranked)
        rows = ({**row, **provenance(row, failed)} for row in classed)
        served.append(list(zip(rows, (score for _, score in ranked), strict=True)))
    steps = _steps(found.draft, plan, served, min(GAP, _SMALL * math.sqrt(len(allowed))))
    numbers = {place: number for number, place in enumerate(plan.order, start=1)}
    traced = {"trace": _trace(found, searcher)} if options.explain else {}
    return {
        "query": task,
        "decomposer": local.name,
        "rounds": len(found.rounds) - 1,
        "converged": found.converged,
        "steps": steps,
        "edges": [
            {"from": numbers[d.before], "to": numbers[d.after], "type": d.kind, "why": d.why}
            for d in plan.dependencies
        ],
        "groups": [[numbers[place] for place in group] for group in plan.groups],
        "left_out": left_out(task, found.draft, len(read)),
        "tokens": {
            "chosen": sum(rows[0][0]["n_tokens"] for rows in _by_choice(steps, served, plan)),
            "pages": 0,
            "all": searcher.tokens(allowed),
        },
        **traced,
    }  # fmt: skip


_Found = list[tuple[dict[str, Any], Ranked]]


def _by_choice(steps: Sequence[dict[str, Any]], served: Sequence[_Found], plan: PlannedTask) -> list[_Found]:
    """Return the ranking of each step for which something was chosen; of one chosen twice, the first."""
    kept: dict[str, _Found] = {}
    for step, place in zip(steps, plan.order, strict=True):
        if step["doc_id"] is not None:
            kept.setdefault(step["doc_id"], served[place])
    return list(kept.values())


def _steps(draft: Draft, plan: PlannedTask, served: Sequence[_Found], least: float) -> list[dict[str, Any]]:
    """Return the steps of a plan; one whose best score is under `least` is a gap."""
    numbers = {place: number for number, place in enumerate(plan.order, start=1)}
    groups = {place: number for number, group in enumerate(plan.groups, start=1) for place in group}
    steps = []
    for place in plan.order:
        step, ranked = draft.steps[place], served[place]
        sure = confidence([found.score for _, found in ranked])
        gap = not ranked or ranked[0][1].score < least
        best = ranked[0][0] if ranked and not gap else {}
        after = sorted(numbers[d.before] for d in plan.dependencies if d.after == place)
        steps.append({
            "step": numbers[place], "text": step.text, "spans": [list(span) for span in step.spans],
            "doc_id": best.get("doc_id"), "name": best.get("name"), "category": best.get("category"),
            "gap": gap, "confidence": round(sure, 3), "group": groups[place], "after": after,
            "condition": condition_of(step.text), "candidates": _candidates(ranked),
        })  # fmt: skip
    return steps


def confidence(scores: Sequence[float]) -> float:
    """Return how likely a step's first candidate is right, in [0, 1], from their scores, best first."""
    if not scores:
        return 0.0
    lead = scores[0] - scores[1] if len(scores) > 1 else scores[0]
    return 1 / (1 + math.exp(-(_OFFSET + _SLOPES[0] * scores[0] + _SLOPES[1] * lead)))


def _candidates(ranked: _Found) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank, "score": found.score, "relevance": found.score, "compatibility": None,
            **{name: row[name] for name in ("doc_id", "name", "category", *PROVENANCE, "licence_class")},
        }
        for rank, (row, found) in enumerate(ranked, start=1)
    ]  # fmt: skip


def _trace(found: Decomposition, searcher: Searcher) -> list[dict[str, Any]]:
    """Return each round's steps, hints (ids), and Jaccard with the hints before."""
    return [
        {"steps": list(r.steps), "hints": searcher.ids(r.hints), "jaccard": r.jaccard} for r in found.rounds
    ]
