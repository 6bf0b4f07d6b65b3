"""Forgets a document or a repository: its text is removed everywhere, a tombstone stays."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from storage.locks import writer_lock
from storage.root import Root
from storage.served import read_served
from storage.tombstones import Forgotten, add_tombstones, mark_purged
from tasks.retrieve.versions.forget_targets import find_targets
from tasks.retrieve.versions.purge import purge


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What was forgotten.

    `scope` is `document` or `repository`. `doc_ids` are named by the target, `copies` held the same text.
    `removed` counts rows by folder or table, and is empty if all were removed before. `served` is the version
    that is served now, None if none is.
    """

    target: str
    scope: str
    doc_ids: tuple[str, ...]
    copies: tuple[str, ...]
    removed: dict[str, int]
    served: str | None


def forget(root: Root, target: str, *, run_id: str, now: datetime) -> ForgetReport:
    """Remove every text of `target` from all files and table versions; leave tombstones that hold no text.

    A target is a doc_id or an alias of one, or a repository: `owner/repo`, `host/owner/repo`, `local/name`. A
    call that was killed is finished by calling again. Older versions of the tables are removed, so there is
    no rollback to them. Readers that use one fail, and find the new version `v-<run_id>` when they read
    `state/served.json` again.

    Raises:
        UnknownDocument: Nothing has or had this id, or lies below it.
        Locked: A backfill is being written; nothing has been removed yet.
        StorageError: A file or table cannot be read; all others have been cleaned.
    """
    found = find_targets(root, target, Forgotten.load(root))
    with ExitStack() as locks:
        # Tombstones come first: from then on no crawl or backfill brings the text back.
        forgotten = add_tombstones(root, found.tombstones, now)
        for day in sorted({"/".join(file.split("/")[:2]) for file in root.files("backfill")}):
            locks.enter_context(writer_lock(Root(root.at(day))))
        removed = purge(root, forgotten, run_id=run_id)
        mark_purged(root, now)
    served, counts = read_served(root), dict(sorted(removed.items()))
    version = served.version if served else None
    return ForgetReport(target, found.scope, found.doc_ids, found.copies, counts, version)
