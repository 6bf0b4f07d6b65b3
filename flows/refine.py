"""Refine: turns raw documents into a clean corpus."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.artifacts import batch_progress, counted, show_table
from flows.run_page import counts, tell
from flows.run_record import new_run_id
from flows.runners import run_batches, runs_elsewhere
from flows.settings import load_settings
from storage.locks import writer_lock
from storage.root import Root
from storage.served import LicenceClass
from storage.state import documents_table
from tasks.refine.licences.policy import LicencePolicy, count_classes
from tasks.refine.shells import plan_refining, refine_raw_parts, settle_corpus
from tasks.refine.workers import batch_processes

# The threads only wait for the worker processes, whose number is a setting.
IN_THREADS = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner(max_workers=64))


@flow(name="refine", flow_run_name="refine {root}", task_runner=IN_THREADS)
def refine(root: str = "data", run_id: str | None = None) -> dict[str, int]:
    """Refine what is new or changed; return the size of the corpus and the dropped documents by reason.

    Args:
        root: Folder of all that Skillery keeps.
        run_id: Filled in by nightly.
    """
    settings, run, now = load_settings(), run_id or new_run_id(), datetime.now(UTC)
    limits = settings.limits()
    with writer_lock(Root(root)):
        plan = plan_refining(root, limits=limits)
        tell(f"documents to refine: {plan['todo']}, gone {plan['gone']}, unchanged {plan['unchanged']}")
        refine_batches(root, plan["batches"], run)
        held = settle_corpus(root, run_id=run, now=now, near=settings.near())
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
    return held


def _licence_classes(root: str) -> dict[LicenceClass, int]:
    """Count the documents by the class of their licence for an export."""
    policy = LicencePolicy(**load_settings().licence_policies()["export"])
    return count_classes(documents_table(Root(root)).read(columns=["licence"])["licence"], policy)


def refine_batches(root: str, batches: list[list[str]], run: str, raw: str | None = None) -> None:
    """Refine the batches of a plan on all cores; `raw` is the root of the raw parts (None: the same root)."""
    settings = load_settings()
    given = {"run_id": run, "limits": settings.limits(), "near": settings.near(), "raw": raw}
    if runs_elsewhere():
        calls = ((refine_raw_parts, {"root": root, "raw_parts": p, "given": given}) for p in batches)
        for _ in run_batches("refine", calls, len(batches)):
            pass
        return
    with (
        batch_processes(len(batches), settings.workers) as executor,
        batch_progress("refine", len(batches)) as step,
    ):
        if executor is None:  # threads would hold many batches in memory, and use no further core
            for parts in batches:
                refine_raw_parts(root, parts, given)
                step()
            return
        for done in [refine_raw_parts.submit(root, parts, given, executor) for parts in batches]:
            done.result()
            step()
