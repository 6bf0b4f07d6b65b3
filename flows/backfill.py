"""Backfill: rebuild the corpus of past days out of raw snapshots, beside what is served."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from prefect import flow

from flows.artifacts import show_table
from flows.record import new_run_id
from flows.refine import IN_THREADS, refine_batches
from flows.settings import load_settings
from storage.locks import writer_lock
from storage.root import Root
from tasks.crawl.shells import plan_backfill, replay_raw
from tasks.parse.shells import parse_batch, plan_parsing, prepare_encoder
from tasks.refine.shells import plan_refining, settle_corpus

log = logging.getLogger(__name__)


@flow(name="backfill", flow_run_name="backfill {start} to {end}", task_runner=IN_THREADS)
def backfill(start: str, end: str, root: str = "data") -> list[dict[str, Any]]:
    """Refine and parse what had been crawled by each day, into tables of their own under backfill/date=…/.

    Doing it again changes nothing; documents/ and what is served stay as they are. Days without a crawl are
    left out; a re-crawl cannot bring the past back, raw snapshots can.

    Args:
        start: First day, YYYY-MM-DD.
        end: Last day, YYYY-MM-DD.
        root: Folder of all that Skillery keeps.
    """
    settings, run = load_settings(), new_run_id()
    encoder = prepare_encoder(root, settings.encoder, settings.encoder_precision)
    days = plan_backfill(root, start, end)
    with writer_lock(Root(root)):
        rows = [_rebuild(root, day, run, settings.limits(), encoder) for day in days]
    log.info("backfill: %d days rebuilt", len(rows))
    show_table("skillery-backfill", rows, f"The corpus as of each day from {start} to {end}.")
    return rows


def _rebuild(root: str, day: str, run: str, limits: dict[str, Any], encoder: str) -> dict[str, Any]:
    place = replay_raw(root, day)
    with writer_lock(Root(place)):
        plan = plan_refining(place, limits=limits)
        refine_batches(place, plan["batches"], run, root)
        counts = settle_corpus(place, run_id=run, now=datetime.now(UTC), near=load_settings().near())
        for partitions in plan_parsing(place, encoder, with_vectors=False)["batches"]:
            parse_batch(place, partitions, encoder, with_vectors=False)
    return {"day": day, "refined now": plan["todo"], "unchanged, skipped": plan["unchanged"], **counts}
