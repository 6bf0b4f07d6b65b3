"""Forgets for the command; it needs no orchestrator."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from flows.record import new_run_id
from storage.locks import writer_lock
from storage.root import Root
from tasks.retrieve.forget import forget


def forget_target(root: Root, target: str) -> dict[str, Any]:
    """Forget a document or a repository and return what was removed.

    Raises:
        UnknownDocument: Nothing has this id, nor lies below it.
        Locked: Another run writes to the root.
    """
    with writer_lock(root):
        return asdict(forget(root, target, run_id=new_run_id(), now=datetime.now(UTC)))
