"""One writer a root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import filelock

from storage.errors import Locked
from storage.root import Root

LOCK = "state/locks/writer.lock"


@contextmanager
def writer_lock(root: Root) -> Iterator[None]:
    """Hold the root's writer lock; the system lets go of it when the process dies, however it dies.

    Raises:
        Locked: Another process writes to this root now.
    """
    path = root.folder / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    # One instance a path and process: a flow within a flow enters again, another process does not.
    lock = filelock.FileLock(path, is_singleton=True, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        msg = f"another run writes to {root.uri}: wait until it has ended"
        raise Locked(msg) from error
    try:
        yield
    finally:
        lock.release()
