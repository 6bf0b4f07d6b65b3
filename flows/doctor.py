"""Examines and mends a root for the command; it needs no orchestrator."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from storage.errors import StorageError
from storage.locks import writer_lock
from storage.root import Root
from storage.served import read_served
from tasks.retrieve.doctor import examine


def examine_root(root: Root) -> dict[str, Any]:
    """Mend what can be mended and return what was found, whether all of it is mended, and what is served.

    Raises:
        Locked: Another run writes to the root; what it has under way is nothing to mend.
    """
    with writer_lock(root):
        findings = examine(root)
        served = _served(root)
    return {
        "findings": [asdict(finding) for finding in findings],
        "mended": all(finding.mended for finding in findings),
        "served": served,
    }


def _served(root: Root) -> str | None:
    try:
        found = read_served(root)
    except StorageError:
        return None
    return found.version if found else None
