"""Retention of versions: keeps the last published ones, and removes files that only older ones need."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import lancedb

from storage.lance import NODES, SKILLS, connect, prune, table_names
from storage.root import Root
from storage.served import Served, drop_published, published_versions, require_served

# A reader that has just read the pointer, or a batch of questions, may hold a version for so long.
_IN_USE = timedelta(hours=24)


def retain_versions(root: Root, keep: int, *, now: datetime) -> list[str]:
    """Let go of all published versions but the last ones; return the names of those that went.

    What is served stays, however old; so does what was published within a day, which a reader may hold.

    Args:
        root: Where they lie; the caller holds its writer lock.
        keep: How many stay, at least 1.
        now: The time.

    Raises:
        NotPublished: Nothing is served.
        StorageError: A record or a table cannot be read; nothing that is kept has been touched.
    """
    served, versions = require_served(root), published_versions(root)
    fresh = [v for v in versions[keep:] if now - v.published_at < _IN_USE]
    kept = [*versions[:keep], *fresh, served]
    gone = [v.version for v in versions if v not in kept]
    if gone:
        db = connect(root)
        for name in table_names(db):
            _prune(db, name, kept, gone)
        # Last: a prune that was killed finds them again.
        for version in gone:
            drop_published(root, version)
    return gone


def _prune(db: lancedb.DBConnection, name: str, kept: Iterable[Served], gone: list[str]) -> None:
    if name in (SKILLS, NODES):
        at = {v.skills if name == SKILLS else v.nodes for v in kept}
        prune(db, name, {version for version in at if version is not None}, gone)
