"""Crawl's Prefect task: one source, one task run."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.opening import Opening, open_source
from tasks.crawl.reach import Reach
from tasks.crawl.replay import backfill_of, days_crawled, replay_seen


@task(name="crawl-source", task_run_name="crawl {spec}", cache_policy=NO_CACHE)
def crawl_source(
    root: str, spec: str, *, run_id: str, now: datetime, limit: int | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Crawl one source into raw parts; `options` are those of Opening, `reach` as a dict."""
    place, read_as = Root(root), {"max_document_bytes": options["max_document_bytes"]}
    reach = Reach(**options["reach"])
    source = open_source(spec, Opening(place, now, limit, **{**options, "reach": reach}))
    return asdict(collect(source, place, run_id=run_id, now=now, limit=limit, options=read_as))


@task(name="plan-backfill", cache_policy=NO_CACHE)
def plan_backfill(root: str, start: str, end: str) -> list[str]:
    """Return the days of the range on which something was crawled."""
    return days_crawled(Root(root), start, end)


@task(name="replay-raw", task_run_name="replay {day}", cache_policy=NO_CACHE)
def replay_raw(root: str, day: str) -> str:
    """Put together what had been seen by the end of a day; return the root of that day's own tables."""
    place = Root(root)
    into = place.at(backfill_of(day))
    replay_seen(place, day, Root(into))
    return into
