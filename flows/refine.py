"""Refine: turns raw documents into a clean corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from prefect import flow
from prefect.events import emit_event

from flows.commands.console import counts
from flows.run_page import counted, flat, on_page, show_table, tell
from flows.run_record import new_run_id
from flows.runners import batches_at_once, run_batches, runs_elsewhere
from flows.settings import load_settings, run_opinions
from storage.locks import writer_lock
from storage.root import Root
from storage.state import documents_table
from tasks.models.llm.ask import EARLY
from tasks.models.llm.budget import Carried, Ledger
from tasks.parse.classify.options import TypingOptions
from tasks.refine.licences.policy import LicencePolicy, count_classes
from tasks.refine.shells import plan_refining, refine_raw_parts, update_refined
from tasks.refine.workers import WORTH_IT

RISK_ADDED = "skillery.risk-added"
_MOST_IN_AN_EVENT = 50  # a server takes 100 related resources, the run's own among them


@flow(name="refine", flow_run_name="refine {root}")
def refine(root: str = "data", run_id: str | None = None, spent: Carried | None = None) -> dict[str, Any]:
    """Refine what is new or changed; return the size of the corpus and the dropped documents by reason.

    `risks_added` tells of each revision that adds risks from `warning` on. Of those that no run has told of
    before an event is emitted. `opinions` says what an LLM was asked about risks, and `account` what it has
    cost so far; null without one.

    Args:
        root: Folder of all that Skillery keeps.
        run_id: Filled in by nightly.
        spent: What this run has asked of an LLM before.
    """
    settings, run, now = load_settings(), run_id or new_run_id(), datetime.now(UTC)
    limits, llm = settings.limits(), run_opinions(settings)
    with writer_lock(Root(root)):
        plan = plan_refining(root, limits=limits, llm=llm)
        tell(f"documents to refine: {plan['todo']}, gone {plan['gone']}, unchanged {plan['unchanged']}")
        done = refine_batches(root, plan["batches"], run, llm=llm, spent=spent)
        held = update_refined(root, run_id=run, now=now, near=settings.near())
    dropped = {reason: n for reason, n in held.items() if reason != "documents"}
    tell(f"documents {held['documents']}, dropped: {counts(dropped)}")
    show_table(
        "skillery-refine",
        partial(_rows, root, plan, held),
        "The corpus now, and why documents are not in it.",
    )
    announce(root, run, done["risks_added"])
    if done["opinions"] is not None:
        show_table("skillery-opinions", counted(done["opinions"]), "What the LLM was asked about risks.")
    return {**held, **done}


def announce(root: str, run: str, added: list[dict[str, Any]]) -> None:
    """Tell of revisions that add risks, on the run's page and, of new ones, by an event."""
    for one in added:
        tell(one["message"])
    new = [one for one in added if one["new"]]
    if new and on_page():
        resource = {"prefect.resource.id": "skillery.corpus", "prefect.resource.name": root}
        related = [
            {"prefect.resource.id": f"skillery.skill.{one['doc_id']}", "prefect.resource.role": "skill"}
            for one in new[:_MOST_IN_AN_EVENT]
        ]
        payload = {"root": root, "run_id": run, "count": len(new), "skills": new[:_MOST_IN_AN_EVENT]}
        emit_event(event=RISK_ADDED, resource=resource, related=related, payload=payload)


def _rows(root: str, plan: Mapping[str, Any], held: Mapping[str, int]) -> list[dict[str, Any]]:
    work = {"refined now": plan["todo"], "gone": plan["gone"], "unchanged, skipped": plan["unchanged"]}
    policy = LicencePolicy(**load_settings().licence_policies()["export"])
    classes = count_classes(documents_table(Root(root)).read(columns=["licence"])["licence"], policy)
    return [
        *counted(work),
        *counted({k if k == "documents" else f"dropped: {k}": n for k, n in held.items()}),
        *counted({f"licence class, when exported: {k}": n for k, n in classes.items()}),
    ]


def refine_batches(
    root: str, batches: list[list[str]], run: str, raw: str | None = None, llm: TypingOptions | None = None,
    spent: Carried | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Refine the batches of a plan on all cores.

    Args:
        root: Folder of all that Skillery keeps.
        batches: Those of the plan.
        run: The run that refines.
        raw: The root of the raw parts; None: the same root.
        llm: The language model that is asked for second opinions; None: none is.
        spent: As of `refine`.

    Returns:
        `risks_added` tells of revisions that add risks, `opinions` what was asked and what that cost, and
        `account` what the rest of the run may spend; the last two are null without an LLM.
    """
    settings = load_settings()
    at_once = batches_at_once(len(batches), llm.endpoint.concurrency) if llm else 1
    ledger = Ledger(llm.prices, llm.ceiling, spent) if llm else None
    given = {
        "root": root, "run_id": run, "limits": settings.limits(), "near": settings.near(), "raw": raw,
        "hold": settings.risks_hold, "llm": llm and llm.shared_by(at_once),
    }  # fmt: skip
    calls = ((refine_raw_parts, {**given, "raw_parts": batch, "ledger": ledger}) for batch in batches)
    # As in parse: threads share the account, and processes hand it on.
    handed_on = llm is not None and runs_elsewhere()
    done = run_batches(
        "refine", calls, len(batches), in_turn=bool(llm) and at_once == 1, waiting=bool(llm), apart=WORTH_IT
    )
    added, told = list[dict[str, Any]](), Counter[str]()
    for batch in done:
        added += batch["risks_added"]
        if llm is not None:
            told.update(flat(batch["opinions"]))
            if handed_on:
                ledger = Ledger(llm.prices, llm.ceiling, batch["account"])
    if llm is None or ledger is None:
        return {"risks_added": added, "opinions": None, "account": None}
    early = any(told[f"fallbacks: {reason}"] for reason in EARLY)
    opinions = {"model": llm.endpoint.model, **told, "partial": early, **ledger.report()}
    return {"risks_added": added, "opinions": opinions, "account": ledger.carried()}
