"""Refine's Prefect tasks: plan, a batch of raw parts, settle."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.refine.batch import refine_batch
from tasks.refine.filters import limits_from
from tasks.refine.near import NearLimits
from tasks.refine.plan import plan_refine
from tasks.refine.settle import settle


@task(name="plan-refine", cache_policy=NO_CACHE)
def plan_refining(root: str, *, limits: dict[str, Any]) -> dict[str, Any]:
    """Decide which documents are to be refined; `limits` are the fields of `Limits`."""
    return asdict(plan_refine(Root(root), limits_from(limits)))


@task(name="refine-batch", cache_policy=NO_CACHE)
def refine_raw_parts(
    root: str, raw_parts: list[str], *, run_id: str, limits: dict[str, Any], raw: str | None = None
) -> dict[str, int]:
    """Refine the documents of a few raw parts, which lie below the root `raw` (None: the same root)."""
    given = limits_from(limits)
    return refine_batch(Root(root), raw_parts, run_id=run_id, limits=given, raw=Root(raw or root))


@task(name="settle-corpus", cache_policy=NO_CACHE)
def settle_corpus(root: str, *, run_id: str, now: datetime, near: dict[str, Any]) -> dict[str, int]:
    """Fold duplicates, retire what is gone, put the corpus in place; `near` are fields of `NearLimits`."""
    return settle(Root(root), run_id=run_id, now=now, near=NearLimits(**near))
