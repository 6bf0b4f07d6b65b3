"""Refine: turns raw documents into a clean corpus."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.events import emit_event

from flows.run_page import counted, counts, show_table, tell
from flows.run_record import new_run_id
from flows.runners import run_batches
from flows.settings import load_settings
from storage.lance.served import LicenceClass
from storage.locks import writer_lock
from storage.root import Root
from storage.state import documents_table
from tasks.refine.licences.policy import LicencePolicy, count_classes
from tasks.refine.shells import plan_refining, refine_raw_parts, update_refined
from tasks.refine.workers import WORTH_IT

RISK_ADDED = "skillery.risk-added"
_MOST_IN_AN_EVENT = 50  # a server takes 100 related resources, the run's own among them


@flow(name="refine", flow_run_name="refine {root}")
def refine(root: str = "data", run_id: str | None = None) -> dict[str, Any]:
    """Refine what is new or changed; return the size of the corpus and the dropped documents by reason.

    `risks_added` tells of each revision that adds risks from `warning` on. Of those that no run has told of
    before an event is emitted.

    Args:
        root: Folder of all that Skillery keeps.
        run_id: Filled in by nightly.
    """
    settings, run, now = load_settings(), run_id or new_run_id(), datetime.now(UTC)
    limits = settings.limits()
    with writer_lock(Root(root)):
        plan = plan_refining(root, limits=limits)
        tell(f"documents to refine: {plan['todo']}, gone {plan['gone']}, unchanged {plan['unchanged']}")
        added = refine_batches(root, plan["batches"], run)
        held = update_refined(root, run_id=run, now=now, near=settings.near())
    dropped = {reason: n for reason, n in held.items() if reason != "documents"}
    tell(f"documents {held['documents']}, dropped: {counts(dropped)}")
    work = {"refined now": plan["todo"], "gone": plan["gone"], "unchanged, skipped": plan["unchanged"]}
    rows = counted(work) + [
        {"what": k if k == "documents" else f"dropped: {k}", "count": n} for k, n in held.items()
    ]
    rows += [
        {"what": f"licence class, when exported: {k}", "count": n} for k, n in _licence_classes(root).items()
    ]
    show_table("skillery-refine", rows, "The corpus now, and why documents are not in it.")
    announce(root, run, added)
    return {**held, "risks_added": added}


def announce(root: str, run: str, added: list[dict[str, Any]]) -> None:
    """Tell of revisions that add risks, on the run's page and, of new ones, by an event."""
    for one in added:
        tell(one["message"])
    new = [one for one in added if one["new"]]
    if new:
        resource = {"prefect.resource.id": "skillery.corpus", "prefect.resource.name": root}
        related = [
            {"prefect.resource.id": f"skillery.skill.{one['doc_id']}", "prefect.resource.role": "skill"}
            for one in new[:_MOST_IN_AN_EVENT]
        ]
        payload = {"root": root, "run_id": run, "count": len(new), "skills": new[:_MOST_IN_AN_EVENT]}
        emit_event(event=RISK_ADDED, resource=resource, related=related, payload=payload)


def _licence_classes(root: str) -> dict[LicenceClass, int]:
    """Count the documents by the class of their licence for an export."""
    policy = LicencePolicy(**load_settings().licence_policies()["export"])
    return count_classes(documents_table(Root(root)).read(columns=["licence"])["licence"], policy)


def refine_batches(
    root: str, batches: list[list[str]], run: str, raw: str | None = None
) -> list[dict[str, Any]]:
    """Refine the batches of a plan on all cores; return what is told of revisions that add risks.

    `raw` is the root of the raw parts (None: the same root).
    """
    settings = load_settings()
    given = {
        "root": root, "run_id": run, "limits": settings.limits(), "near": settings.near(), "raw": raw,
        "hold": settings.risks_hold,
    }  # fmt: skip
    calls = ((refine_raw_parts, {**given, "raw_parts": batch}) for batch in batches)
    done = run_batches("refine", calls, len(batches), apart=WORTH_IT)
    return [one for batch in done for one in batch["risks_added"]]
