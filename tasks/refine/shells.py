"""Prefect shells of refine: the plan, a batch of raw parts, an update of the corpus."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.refine.batch import refine_batch
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.filters import limits_from
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.refine.workers import run_in


@task(name="plan-refine", cache_policy=NO_CACHE)
def plan_refining(root: str, *, limits: dict[str, Any]) -> dict[str, Any]:
    """Decide which documents are to be refined; `limits` are the fields of `FilterLimits`."""
    return asdict(plan_refine(Root(root), limits_from(limits)))


@task(name="refine-batch", cache_policy=NO_CACHE)
def refine_raw_parts(
    root: str, raw_parts: list[str], given: dict[str, Any], executor: Executor | None = None
) -> dict[str, int]:
    """Refine a batch; `given`: run_id, fields of `limits` and `near`, and raw, the parts' root or None."""
    limits, near = limits_from(given["limits"]), NearLimits(**given["near"])
    raw = Root(given["raw"] or root)
    batch = partial(refine_batch, Root(root), raw_parts, run_id=given["run_id"], limits=limits)
    return run_in(executor, partial(batch, raw=raw, near=near))


@task(name="update-corpus", cache_policy=NO_CACHE)
def update_refined(root: str, *, run_id: str, now: datetime, near: dict[str, Any]) -> dict[str, int]:
    """Fold duplicates, retire lost documents, update the corpus; `near`: the fields of `NearLimits`."""
    return update_corpus(Root(root), run_id=run_id, now=now, near=NearLimits(**near))
