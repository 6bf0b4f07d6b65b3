"""Prefect shells of refine: the plan, a batch of raw parts, an update of the corpus."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import concurrency
from prefect.exceptions import ObjectNotFound

from storage.root import Root
from tasks.models.llm.ask import LlmOptions, Slot
from tasks.models.llm.budget import Ledger
from tasks.refine.batch import refine_batch
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.filters import FilterLimits
from tasks.refine.opinions import identity
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.refine.workers import run_in

# The global concurrency limit of questions to the language model, over all workers.
LIMIT = "skillery-llm"


@task(name="plan-refine", cache_policy=NO_CACHE)
def plan_refining(root: str, *, limits: FilterLimits, llm: LlmOptions | None = None) -> dict[str, Any]:
    """Decide which documents are to be refined; return the `RefinePlan` as a dict."""
    return asdict(plan_refine(Root(root), limits, identity(llm)))


@task(name="refine-batch", cache_policy=NO_CACHE)
def refine_raw_parts(
    root: str, raw_parts: list[str], *, run_id: str, limits: FilterLimits, near: NearLimits,
    raw: str | None = None, hold: str | None = None, llm: LlmOptions | None = None,
    ledger: Ledger | None = None, executor: Executor | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Refine a batch; `raw` is the root of the raw parts (None: the same root)."""
    batch = partial(refine_batch, Root(root), raw_parts, run_id=run_id, limits=limits, near=near, hold=hold)
    return run_in(executor, partial(batch, raw=Root(raw or root), llm=llm, ledger=ledger, slot=slot_of(llm)))


@task(name="update-corpus", cache_policy=NO_CACHE)
def update_refined(root: str, *, run_id: str, now: datetime, near: NearLimits) -> dict[str, int]:
    """Fold duplicates, retire lost documents, update the corpus."""
    return update_corpus(Root(root), run_id=run_id, now=now, near=near)


def slot_of(*asked: object) -> Slot:
    """Return what takes a slot of Prefect's global concurrency limit, if that exists and a model is asked."""
    if not any(asked):
        return nullcontext
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        client.read_global_concurrency_limit_by_name(LIMIT)
        return lambda: concurrency(LIMIT)
    return nullcontext
