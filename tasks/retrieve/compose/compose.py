"""Compose: from a task to steps in an order in which they can be done, each with what serves it.

After SkillWeaver (section 4): decompose, retrieve, compose.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from storage.served import require_licences
from tasks.models.adapted_encoder import is_base
from tasks.retrieve.compose.candidates import FOLDED, CandidateFinder, ServedStep
from tasks.retrieve.compose.compatibility.selection import Found
from tasks.retrieve.compose.decompose.draft import Decomposer, Draft
from tasks.retrieve.compose.decompose.local import LocalDecomposer
from tasks.retrieve.compose.decompose.matches import MOST, Matcher, ToldRow
from tasks.retrieve.compose.decompose.rounds import Decomposition, decompose
from tasks.retrieve.compose.decompose.task_model import packaged_model
from tasks.retrieve.compose.dependencies import condition_of, ordered
from tasks.retrieve.compose.left_out import left_out
from tasks.retrieve.compose.options import ComposeOptions
from tasks.retrieve.compose.pages import with_pages
from tasks.retrieve.compose.plan import PlannedTask
from tasks.retrieve.compose.protocol import StepReranker
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.search import PROVENANCE, Searcher
from tasks.retrieve.served_index import ServedIndex, asked_again, require_text

LONGEST = 8_000  # characters; what is longer is a document, and no request


@asked_again
def compose(
    index: ServedIndex,
    task: str,
    options: ComposeOptions | None = None,
    decomposer: Decomposer | None = None,
    reranker: StepReranker | None = None,
) -> dict[str, Any]:
    """Return the plan of a task, as the command prints it; by default the local decomposer takes it apart.

    Raises:
        WrongInput: The task is blank or no valid Unicode text, an option is out of its range, or nothing has
            what a filter asks for.
        StorageError: A table or the file of licences' classes is damaged or missing.
        NotPublished: Nothing is served.
        LlmDenied: A language model is asked, and its server denies access or has no such model.
    """
    started, chosen = time.perf_counter(), options or ComposeOptions()
    require_text("task", task)
    failed = index.failed_sources()
    with index.version() as now:
        plan = _composed(now, task, chosen, failed, decomposer, reranker)
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
    reranker: StepReranker | None,
) -> dict[str, Any]:
    read = task[:LONGEST]
    # The model first: what loading it takes for a moment is given back before the index needs room.
    model, searcher, licences = packaged_model(), now.searcher(), require_licences(now.root)
    allowed = searcher.allowed(options.filters, licences)
    seek = (lambda steps: model.sought(read, steps)) if is_base(now.encoder.card) else None
    most = max(MOST, FOLDED * options.k)
    matcher = Matcher(searcher.router, seek, allowed, lambda places: _told_rows(searcher, places), most)
    local = decomposer or LocalDecomposer(model, most=options.max_steps)
    found = decompose(read, local, matcher, rounds=options.rounds, hints=options.hints)
    draft = found.draft
    plan = ordered(read, draft, model)
    finder = CandidateFinder(searcher, matcher, licences, failed, options, reranker)
    served = finder.find(read, draft.steps, plan)
    numbers = {place: number for number, place in enumerate(plan.order, start=1)}
    return {
        "query": task,
        "decomposer": local.name,
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
        **({"trace": _trace(found, searcher)} if options.explain else {}),
    }  # fmt: skip


def _told_rows(searcher: Searcher, places: Sequence[int]) -> list[ToldRow]:
    rows = searcher.rows(places)
    return [ToldRow(row["doc_id"], row["name"], row["description"] or "", row["category"]) for row in rows]


def _tokens(served: Sequence[ServedStep]) -> int:
    """Return the tokens of what is chosen; what is chosen twice counts once."""
    chosen = [step.rows[0][0] for step in served if not step.gap]
    return sum({row["doc_id"]: row["n_tokens"] for row in chosen}.values())


def _steps(draft: Draft, plan: PlannedTask, served: Sequence[ServedStep], k: int) -> list[dict[str, Any]]:
    """Return the steps of a plan in its order, each with `k` candidates."""
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


def _trace(found: Decomposition, searcher: Searcher) -> list[dict[str, Any]]:
    """Return each round's steps, hints (ids), and Jaccard with the hints before."""
    return [
        {"steps": list(r.steps), "hints": searcher.ids(r.hints), "jaccard": r.jaccard} for r in found.rounds
    ]
