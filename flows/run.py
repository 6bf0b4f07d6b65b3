"""Runs flows in this process, for the command."""

from __future__ import annotations

import logging
from typing import Any, Literal, cast

from flows.prefect_home import prepare_prefect
from flows.record import new_run_id
from storage.errors import SkilleryError
from storage.root import Root
from storage.state import read_runs
from tasks.crawl.sample import SAMPLE
from tasks.crawl.source import parse_spec

log = logging.getLogger(__name__)


def run_nightly(root: Root, sources: list[str] | None, limit: int | None, index: str) -> dict[str, Any]:
    """Run the nightly flow and return its record, also where a stage failed or the gate refused.

    Raises:
        WrongInput: A source's spec has none of the known forms; nothing has been started then.
        SkilleryError: The run failed before it had a record (another run holds the root).
    """
    for spec in sources or []:
        if spec != SAMPLE:
            parse_spec(spec)
    prepare_prefect(root)
    from flows.nightly import nightly  # noqa: PLC0415 (Prefect reads its settings when imported)

    run_id = new_run_id()
    mode = cast(Literal["all", "skills"], index)
    try:
        return nightly(root.uri, sources, limit, mode, run_id)
    except SkilleryError as error:
        records = [r for r in read_runs(root) if r["run_id"] == run_id]
        if not records:
            raise
        log.debug("the run failed", exc_info=error)
        return records[0]


def run_evaluation(root: Root) -> dict[str, Any]:
    """Run the evaluation flow on what is served and return its figures."""
    prepare_prefect(root)
    from flows.evaluate import evaluate  # noqa: PLC0415

    return evaluate(root.uri)
