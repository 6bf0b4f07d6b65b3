"""Goes back for the command; it needs no orchestrator."""

from __future__ import annotations

from typing import Any

from storage.locks import writer_lock
from storage.root import Root
from storage.served import published_versions
from tasks.retrieve.rollback import roll_back


def roll_back_root(root: Root, version: str | None) -> dict[str, Any]:
    """Serve an earlier version again and return what is served, what was, and the versions there are.

    Raises:
        WrongInput: There is no such version.
        Locked: Another run writes to the root; it may be about to publish.
    """
    with writer_lock(root):
        was, now = roll_back(root, version)
        kept = published_versions(root)
    return {
        "served": now.version,
        "was": was.version,
        "published_at": now.published_at.isoformat(),
        "versions": [v.version for v in kept],
    }
