"""Shells of the crawl: its Prefect tasks, one task run for each source."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.crawl.backfill import backfill_of, days_crawled, replay_seen
from tasks.crawl.collect import collect, collect_some
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.refresh import Target, open_part, sources_of
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import remembered_source
from tasks.models.retry import task_retries


@task(name="crawl-source", task_run_name="crawl {spec}", cache_policy=NO_CACHE, **task_retries())
def crawl_source(
    root: str, spec: str, *, run_id: str, now: datetime, limit: int | None, settings: CrawlSettings
) -> dict[str, Any]:
    """Crawl one source into raw parts."""
    place = Root(root)
    source = remembered_source(spec, CrawlContext(place, now, limit, settings))
    return asdict(collect(source, place, run_id=run_id, now=now, limit=limit, settings=settings))


@task(name="find-sources", cache_policy=NO_CACHE)
def find_sources(root: str, target: str) -> list[str]:
    """Return the specs of the sources that hold a document or repository."""
    return sources_of(Root(root), Target(target))


@task(
    name="refresh-source", task_run_name="refresh {target} of {spec}", cache_policy=NO_CACHE, **task_retries()
)
def refresh_source(
    root: str, spec: str, target: str, *, run_id: str, now: datetime, settings: CrawlSettings
) -> dict[str, Any]:
    """Refresh a document or repository from one source; arguments as those of `crawl_source`."""
    place, wanted = Root(root), Target(target)
    source, covers = open_part(spec, wanted, CrawlContext(place, now, None, settings))
    return asdict(collect_some(source, place, covers, run_id=run_id, now=now, settings=settings))


@task(name="plan-backfill", cache_policy=NO_CACHE)
def plan_backfill(root: str, start: str, end: str) -> list[str]:
    """Return the days of the range on which something was crawled."""
    return days_crawled(Root(root), start, end)


@task(name="replay-raw", task_run_name="replay {day}", cache_policy=NO_CACHE)
def replay_raw(root: str, day: str) -> str:
    """Replay what had been seen by the end of a day; return the root of that day's own tables."""
    place = Root(root)
    into = place.at(backfill_of(day))
    replay_seen(place, day, Root(into))
    return into
