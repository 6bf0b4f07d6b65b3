"""Pages: what a step's skill says that the step needs, so that a plan comes with its instructions."""

from __future__ import annotations

import math
from typing import Any

from storage.errors import UnknownDocument, Withheld, WrongInput
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.served_index import ServedIndex


def require_pages(budget: float | None) -> None:
    """Raise `WrongInput` if a budget of pages is neither None nor a positive number."""
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        msg = f"pages is {budget}, no positive number: give a share up to 1, or a number of tokens"
        raise WrongInput(msg)


def with_pages(index: ServedIndex, plan: dict[str, Any], budget: float) -> dict[str, Any]:
    """Return a plan with the page of each step for which a skill was chosen, for that step's text.

    A server is described and not instructed, so a step that one serves has no page. A step's `page` is None,
    and its `page_error` says why, where the skill's licence keeps its text back, or where the skill has gone
    since the plan was made. Of a skill that was chosen for two steps each page is counted.

    Args:
        index: Serves the skills.
        plan: A plan as `compose` makes it.
        budget: For each page: up to 1 a share of the document's tokens, above 1 a number of tokens.
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
    """Return the candidate that was chosen for a step; None for a gap."""
    if step["doc_id"] is None:
        return None
    return next((one for one in step["candidates"] if one["doc_id"] == step["doc_id"]), None)
