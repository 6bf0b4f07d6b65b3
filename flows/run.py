"""Runs flows in this process, for the command."""

from __future__ import annotations

from typing import Any, Literal, cast

from flows.prefect_home import prepare_prefect
from flows.record import new_run_id
from storage.root import Root
from storage.served import require_served
from storage.state import read_runs
from tasks.crawl.opening import normal_spec


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


def run_evaluation(root: Root) -> dict[str, Any]:
    """Run the evaluation flow on what is served and return its figures.

    Raises:
        NotPublished: Nothing is served.
    """
    require_served(root)
    prepare_prefect(root)
    from flows.evaluate import evaluate  # noqa: PLC0415

    return evaluate(root.uri)
