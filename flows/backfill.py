"""Backfill: rebuilds the corpus of past days from raw snapshots, beside what is served."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from flows.commands.foresee import foreseen_of
from flows.index import index as index_tables
from flows.refine import refine_batches
from flows.run_page import named, recorded_writing, show_table, tell
from flows.run_record import this_run
from flows.runners import run_batches
from flows.settings import Stage, load_settings
from storage.lance.served import read_served
from storage.locks import writer_lock
from storage.root import Root
from storage.state import corpus_counts
from tasks.crawl.backfill import STAGES, backfill_of, require_whole
from tasks.crawl.shells import plan_backfill, replay_raw
from tasks.parse.corpus import ParseOptions
from tasks.parse.shells import parse_batch, plan_parsing, prepare_encoder
from tasks.refine.filters import FilterLimits
from tasks.refine.shells import plan_refining, update_refined
from tasks.refine.workers import WORTH_IT


@flow(name="backfill", flow_run_name=named("backfill {start} to {end}"))
def backfill(
    start: date, end: date, root: str = "data", publish: bool = False, stages: list[Stage] | None = None,
    wait_minutes: Annotated[float, Field(ge=0)] = 60,
) -> list[dict[str, Any]]:  # fmt: skip
    """Refine and parse what had been crawled by each day, into separate tables under backfill/date=…/.

    The flow can be repeated without an effect, and a run that died is finished by the next one. documents/
    and what is served stay as they are, unless `publish` is set. Days without a crawl are left out.

    Args:
        start: First day, UTC.
        end: Last day, UTC.
        root: Folder of all that Skillery keeps.
        publish: Serve the corpus of the last day if it passes the gate; the next night continues from it.
        stages: The stages to run for each day, refine or parse; empty: both. The results of a stage that is
            not run stay as an earlier backfill of that day left them.
        wait_minutes: How long to wait for another run that writes to this root.

    Raises:
        WrongInput: `publish` is set, and `stages` lacks one.
        GateRefused: The last day's corpus failed a check; what was served stays.
    """
    settings, run, chosen = load_settings(), this_run(), stages or STAGES
    if publish:
        require_whole(chosen)
    with recorded_writing(Root(root), wait_minutes, run, "backfill") as record, record.stage("backfill"):
        encoder = prepare_encoder(root, settings.encoder)
        days = plan_backfill(root, start.isoformat(), end.isoformat())
        record.foreseen = foreseen_of(Root(root), settings, (), days=days)
        rows = [_rebuild(root, day, run, settings.limits(), encoder, chosen) for day in days]
        for row in rows:
            tell(f"{row['day']}: {row['documents']} documents, {row['nodes']} nodes")
        if publish and rows:
            rows[-1]["published"] = _publish(root, days[-1], run)
            record.published = rows[-1]["published"] is not None
    show_table("skillery-backfill", rows, f"The corpus as of each day from {start} to {end}.")
    return rows


def _rebuild(
    root: str, day: str, run: str, limits: FilterLimits, encoder: str, stages: Sequence[str]
) -> dict[str, Any]:
    place, done = replay_raw(root, day), dict[str, int]()
    with writer_lock(Root(place)):
        if "refine" in stages:
            plan = plan_refining(place, limits=limits)
            refine_batches(place, plan["batches"], run, root)
            near = load_settings().near()
            done = update_refined(place, run_id=run, now=datetime.now(UTC), near=near)
            done |= {"refined now": plan["todo"], "unchanged, skipped": plan["unchanged"]}
        if "parse" in stages:
            grouped = load_settings().segment == "skillpager"
            options = ParseOptions(encoder, with_vectors=False, grouped=grouped)
            batches = plan_parsing(place, options)["batches"]
            given = {"root": place, "options": options}
            calls = ((parse_batch, {**given, "partitions": partitions}) for partitions in batches)
            for _ in run_batches("parse", calls, len(batches), apart=WORTH_IT):
                pass
        counts = corpus_counts(Root(place))
    held = {"documents": counts.documents, "nodes": counts.nodes}
    return {"day": day, **held, **done, "published": None}


def _publish(root: str, day: str, run: str) -> str | None:
    """Serve a day's corpus, with nodes if the served version has them; return the version, or None."""
    served = read_served(Root(root))
    nodes, tables = served is None or served.nodes is not None, Root(root).at(backfill_of(day))
    version: str | None = index_tables(root, "all" if nodes else "skills", run, corpus=tables)["version"]
    return version
