"""Crawls a Parquet file and refines it, as the flows do, without Prefect: for the benchmarks of refine."""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import polars as pl

from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.local.parquet_file import ParquetSource
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.refine.workers import batch_processes

FIRST_NIGHT = datetime(2026, 3, 1, 2, tzinfo=UTC)


def crawl(folder: Path, corpus: Path, night: int = 0) -> None:
    """Read a Parquet file of id and content into raw parts."""
    now = FIRST_NIGHT + timedelta(days=night)
    collect(ParquetSource(str(corpus)), Root(folder), run_id=f"{now:%Y%m%d}", now=now)


def refine(
    folder: Path, night: int = 0, limits: FilterLimits | None = None, workers: int | None = None
) -> tuple[dict[str, int], float, float]:
    """Refine what was crawled; return the corpus' counts, the seconds it took, and those of settling."""
    root, now, limits = Root(folder), FIRST_NIGHT + timedelta(days=night), limits or FilterLimits()
    began = time.perf_counter()
    batches = plan_refine(root, limits).batches
    work = partial(refine_batch, root, run_id=f"{now:%Y%m%d}", limits=limits)
    with batch_processes(len(batches), workers) as executor:
        deque((executor.map if executor else map)(work, batches), maxlen=0)
    settling = time.perf_counter()
    counts = update_corpus(root, run_id=f"{now:%Y%m%d}", now=now)
    return counts, time.perf_counter() - began, time.perf_counter() - settling


def dropped(folder: Path) -> pl.DataFrame:
    """Return every document that was dropped, with its reason, survivor and similarity."""
    return pl.read_parquet(folder / "dropped" / "*.parquet")
