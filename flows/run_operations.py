"""Runs the flows of an operator in this process, for the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

from flows.prefect_home import prepare_prefect
from flows.record import new_run_id
from storage.root import Root
from storage.served import require_served
from storage.state import read_run
from tasks.crawl.refresh import Target, sources_of


def run_refresh(root: Root, target: str, index: str) -> dict[str, Any]:
    """Look at one document or repository again and return the run's record, also of one that failed.

    Raises:
        WrongInput: No source has brought it; nothing has been started then.
        Locked: Another run writes to the root.
    """
    sources_of(root, Target(target))
    prepare_prefect(root)
    from flows.refresh_one import refresh_one  # noqa: PLC0415 (Prefect reads its settings when imported)

    return _recorded(root, lambda run: refresh_one(target, root.uri, _mode(index), 0, run))


def run_rebuild(root: Root, index: str, *, keep_vectors: bool) -> dict[str, Any]:
    """Make everything anew out of raw snapshots and return the run's record, also of one that failed.

    Raises:
        Locked: Another run writes to the root.
    """
    prepare_prefect(root)
    from flows.full_rebuild import full_rebuild  # noqa: PLC0415

    return _recorded(root, lambda run: full_rebuild(root.uri, _mode(index), keep_vectors, 0, run))


def run_compaction(root: Root) -> dict[str, Any]:
    """Compact the tables and let go of old files; return what came of it.

    Raises:
        NotPublished: Nothing is served.
        GateRefused: A compacted table differs from the served one, which stays.
        Locked: Another run writes to the root.
    """
    require_served(root)
    prepare_prefect(root)
    from flows.compact import compact  # noqa: PLC0415

    return compact(root.uri, 0)


def _mode(index: str) -> Literal["all", "skills"]:
    return cast(Literal["all", "skills"], index)


def _recorded(root: Root, start: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return what a run that is given its name returns, or the record of it where it fails."""
    run_id = new_run_id()
    try:
        return start(run_id)
    except Exception:
        # Whatever it was, Prefect has shown it, and the run's record says it.
        record = read_run(root, run_id)
        if record is None:
            raise
        return record
