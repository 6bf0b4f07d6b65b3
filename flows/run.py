"""Runs flows in this process, for the command."""

from __future__ import annotations

from typing import Any, Literal, cast

from flows.prefect_home import prepare_prefect
from flows.record import new_run_id
from storage.errors import WrongInput
from storage.root import Root
from storage.served import require_served
from storage.state import read_runs
from tasks.crawl.opening import normal_spec
from tasks.crawl.replay import days_crawled, replay_plan


def run_nightly(root: Root, sources: list[str] | None, limit: int | None, index: str) -> dict[str, Any]:
    """Run the nightly flow and return its record, also where a stage failed or the gate refused.

    Raises:
        WrongInput: A source's spec has none of the known forms; nothing has been started then.
        SkilleryError: The run failed before it had a record (another run holds the root).
    """
    specs = [normal_spec(spec) for spec in sources or []]
    prepare_prefect(root)
    from flows.nightly import nightly  # noqa: PLC0415 (Prefect reads its settings when imported)

    run_id = new_run_id()
    mode = cast(Literal["all", "skills"], index)
    try:
        return nightly(root.uri, specs or None, limit, mode, run_id)
    except Exception:
        # Whatever it was, Prefect has shown it, and the run's record says it.
        records = [r for r in read_runs(root) if r["run_id"] == run_id]
        if not records:
            raise
        return records[0]


def run_backfill(root: Root, start: str, end: str) -> list[dict[str, Any]]:
    """Run the backfill flow and return a row a day that was rebuilt.

    Raises:
        WrongInput: One is no date, the end lies before the start, or nothing was crawled in between.
        Locked: Another run writes to the root.
    """
    _require_days(root, start, end)
    prepare_prefect(root)
    from flows.backfill import backfill  # noqa: PLC0415

    return backfill(start, end, root.uri)


def foresee_backfill(root: Root, start: str, end: str) -> list[dict[str, Any]]:
    """Return a row a day that a backfill of this range would rebuild; nothing is written.

    Raises:
        WrongInput: As `run_backfill`.
    """
    return replay_plan(root, _require_days(root, start, end))


def _require_days(root: Root, start: str, end: str) -> list[str]:
    days = days_crawled(root, start, end)
    if not days:
        every = days_crawled(root, "0001-01-01", "9999-12-31")
        held = f"{every[0]} to {every[-1]}" if every else "no day at all"
        msg = f"nothing was crawled from {start} to {end}; raw snapshots hold {held}"
        raise WrongInput(msg)
    return days


def run_evaluation(root: Root) -> dict[str, Any]:
    """Run the evaluation flow on what is served and return its figures.

    Raises:
        NotPublished: Nothing is served.
    """
    require_served(root)
    prepare_prefect(root)
    from flows.evaluate import evaluate  # noqa: PLC0415

    return evaluate(root.uri)
