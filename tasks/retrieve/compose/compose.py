"""Compose: from a task to steps in an order in which they can be done, each with what serves it.

After SkillWeaver (section 4): decompose, retrieve, compose.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import UnknownDocument, Withheld, WrongInput
from storage.lance.served import require_licences
from tasks.models.adapted_encoder import is_base
from tasks.retrieve.compose.candidates import FOLDED, CandidateFinder, Found, StepCandidates, StepReranker
from tasks.retrieve.compose.dependencies import PlannedTask, condition_of, ordered
from tasks.retrieve.compose.drafts import Draft, left_out
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.compose.ranking import MOST, Matcher
from tasks.retrieve.compose.rounds import HINTS, Decomposer, decompose
from tasks.retrieve.compose.task_model import packaged_model
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.routing.search import PROVENANCE, Filters
from tasks.retrieve.served_index import ServedIndex, asked_again, require_text

LONGEST = 8_000  # characters; what is longer is a document, and no request
MOST_STEPS, CANDIDATES = 8, 5
LARGEST = 40  # steps; what needs more is several tasks


@dataclass(frozen=True, slots=True)
class ComposeOptions:
    """How a task is composed: candidates a step, steps at most, rounds with hints, hints a round, filters.

    `alpha` weighs relevance against compatibility with the steps before (equation 4); 1 is relevance alone.
    Without `context` a step's rows are ranked by its own words and vector alone. `pages` is the budget of
    each step's page: up to 1 a share of the document's tokens, above 1 a number of tokens; None makes no
    pages.
    """

    k: int = CANDIDATES
    max_steps: int = MOST_STEPS
    rounds: int = 1
    hints: int = HINTS
    explain: bool = False
    filters: Filters = field(default_factory=Filters)
    alpha: float = 1.0
    context: bool = True
    pages: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("max_steps", 1), ("rounds", 0), ("hints", 1)):
            if getattr(self, name) < least:
                raise WrongInput(f"{name} is {getattr(self, name)}: give at least {least}")
        if self.max_steps > LARGEST:
            raise WrongInput(f"max_steps is {self.max_steps}: give at most {LARGEST}")
        if not 0 <= self.alpha <= 1:  # NaN neither
            raise WrongInput(f"alpha is {self.alpha}: give a number from 0 to 1")
        if self.pages is not None and not (math.isfinite(self.pages) and self.pages > 0):
            msg = f"pages is {self.pages}, no positive number: give a share up to 1, or a number of tokens"
            raise WrongInput(msg)


@asked_again
def compose(
    index: ServedIndex, task: str, options: ComposeOptions | None = None,
    decomposer: Decomposer | None = None, reranker: StepReranker | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the plan of a task, as the command prints it; by default the local decomposer takes it apart.

    Raises `WrongInput` if the task is blank or no valid Unicode text, an option is out of its range, or
    nothing has what a filter asks for; `StorageError` if a table or the file of licences' classes is damaged
    or missing; `NotPublished` if nothing is served; `LlmDenied` if a language model is asked, and its server
    denies access or has no such model.
    """
    started, chosen = time.perf_counter(), options or ComposeOptions()
    require_text("task", task)
    failed = index.failed_sources()
    with index.version() as now:
        plan = _composed(now, task, chosen, failed, decomposer, reranker)
    if chosen.pages is not None:
        plan = _with_pages(index, plan, chosen.pages)
    took = round((time.perf_counter() - started) * 1000, 3)
    return {**plan, "index_version": now.served.version, "took_ms": took}


def _composed(
    now: OpenVersion, task: str, options: ComposeOptions, failed: set[str], decomposer: Decomposer | None,
    reranker: StepReranker | None,
) -> dict[str, Any]:  # fmt: skip
    read = task[:LONGEST]
    # The model first: what loading it takes for a moment is given back before the index needs room.
    model, searcher, licences = packaged_model(), now.searcher(), require_licences(now.root)
    allowed = searcher.allowed(options.filters, licences)
    seeks = model if is_base(now.encoder.card) else None
    matcher = Matcher(searcher, seeks, read, allowed, max(MOST, FOLDED * options.k))
    cut_by = decomposer or LocalDecomposer(model, most=options.max_steps)
    found = decompose(read, cut_by, matcher, rounds=options.rounds, hints=options.hints)
    draft = found.draft
    plan = ordered(read, draft, model)
    finder = CandidateFinder(
        searcher, matcher, licences, failed, options.k, options.alpha, options.context, reranker
    )
    served = finder.find(read, draft.steps, plan)
    numbers = {place: number for number, place in enumerate(plan.order, start=1)}
    trace = [
        {"steps": list(r.steps), "hints": searcher.ids(r.hints), "jaccard": r.jaccard} for r in found.rounds
    ]
    return {
        "query": task,
        "decomposer": cut_by.name,
        "rounds": len(found.rounds) - 1,
        "converged": found.converged,
        "steps": _steps(draft, plan, served, options.k),
        "edges": [
            {"from": numbers[d.before], "to": numbers[d.after], "type": d.kind, "why": d.why}
            for d in plan.dependencies
        ],
        "groups": [[numbers[place] for place in group] for group in plan.groups],
        "left_out": left_out(task, draft, len(read)),
        "tokens": {"chosen": _tokens(served), "pages": 0, "all": searcher.tokens(allowed)},
        **({"trace": trace} if options.explain else {}),
    }  # fmt: skip


def _tokens(served: Sequence[StepCandidates]) -> int:
    """Return the tokens of what is chosen; what is chosen twice counts once."""
    chosen = [step.rows[0][0] for step in served if not step.gap]
    return sum({row["doc_id"]: row["n_tokens"] for row in chosen}.values())


def _steps(draft: Draft, plan: PlannedTask, served: Sequence[StepCandidates], k: int) -> list[dict[str, Any]]:
    numbers = {place: number for number, place in enumerate(plan.order, start=1)}
    groups = {place: number for number, group in enumerate(plan.groups, start=1) for place in group}
    steps = []
    for place in plan.order:
        step, own = draft.steps[place], served[place]
        best = {} if own.gap else own.rows[0][0]
        after = sorted(numbers[d.before] for d in plan.dependencies if d.after == place)
        steps.append({
            "step": numbers[place], "text": step.text, "spans": [list(span) for span in step.spans],
            "doc_id": best.get("doc_id"), "name": best.get("name"), "category": best.get("category"),
            "gap": own.gap, "confidence": round(own.confidence, 3), "group": groups[place], "after": after,
            "condition": condition_of(step.words), "candidates": _candidates(own.rows[:k]),
        })  # fmt: skip
    return steps


def _candidates(rows: Sequence[Found]) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank, "score": found.score, "relevance": row["relevance"],
            "compatibility": row["compatibility"],
            **{name: row[name] for name in ("doc_id", "name", "category", *PROVENANCE, "licence_class")},
        }
        for rank, (row, found) in enumerate(rows, start=1)
    ]  # fmt: skip


def _with_pages(index: ServedIndex, plan: dict[str, Any], budget: float) -> dict[str, Any]:
    """Return a plan with the page of each step for which a skill was chosen, for that step's text.

    A server is described and not instructed, so a step that one serves has no page. A step's `page` is None,
    and its `page_error` says why, where the skill's licence keeps its text back, or where the skill has gone
    since the plan was made. Of a skill that was chosen for two steps each page is counted.
    """
    steps = [{**step, **_page(index, step, budget)} for step in plan["steps"]]
    pages = [page for step in steps if (page := step.get("page"))]
    return {
        **plan,
        "steps": steps,
        "tokens": {**plan["tokens"], "pages": sum(page["tokens"] for page in pages)},
    }


def _page(index: ServedIndex, step: dict[str, Any], budget: float) -> dict[str, Any]:
    chosen = chosen_candidate(step)
    if chosen is None or chosen["kind"] != "skill":
        return {}
    try:
        found = index.page(chosen["doc_id"], step["text"], budget=budget, method=DEFAULT_METHOD)
    except (UnknownDocument, Withheld) as error:
        return {"page": None, "page_error": str(error)}
    kept = {name: found[name] for name in ("context", "tokens", "document_tokens")}
    return {"page": {**kept, "nodes": [node["node_id"] for node in found["nodes"]]}}


def chosen_candidate(step: dict[str, Any]) -> dict[str, Any] | None:
    """Return the candidate that was chosen for a step of a plan; None for a gap."""
    if step["doc_id"] is None:
        return None
    return next((one for one in step["candidates"] if one["doc_id"] == step["doc_id"]), None)
