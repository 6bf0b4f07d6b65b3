"""One writer a root, and who it is."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import filelock

from storage.errors import Locked, StorageError
from storage.folder import Folder
from storage.root import Root

LOCK = "state/locks/writer.lock"
_HOLDER = "state/locks/writer.json"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a root's writer lock; `since` is its UTC time in ISO form."""

    pid: int
    host: str
    since: str
    command: str


@contextmanager
def writer_lock(root: Root, wait: float = 0) -> Iterator[None]:
    """Hold the root's writer lock; however the process dies, the lock is let go of.

    Of a folder the system lets go at once; a bucket's is a lease that others may take when its holder has
    been silent for a minute, after which that one can write nothing more.

    Args:
        root: The root to write to.
        wait: Seconds to wait for another process to let go; below 0: until it does.

    Raises:
        Locked: Another process writes to this root; the message says which, where that is known.
    """
    with (_file_lock if isinstance(root.place, Folder) else _lease)(root, wait):
        yield


@contextmanager
def _lease(root: Root, wait: float) -> Iterator[None]:
    from storage.bucket import Bucket  # noqa: PLC0415 (its library comes with an extra)
    from storage.leases import leased  # noqa: PLC0415

    assert isinstance(root.place, Bucket)  # noqa: S101 (for the types: a root is the one or the other)
    with leased(root.place, _HOLDER, asdict(_this_process()), wait=wait) as held:
        if not held:
            raise Locked(_locked(root))
        yield


@contextmanager
def _file_lock(root: Root, wait: float) -> Iterator[None]:
    path = root.folder / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    # One instance a path and process: a flow within a flow enters again, another process does not.
    lock = filelock.FileLock(path, is_singleton=True, thread_local=False)
    try:
        lock.acquire(timeout=wait)
    except filelock.Timeout as error:
        raise Locked(_locked(root)) from error
    outermost = lock.lock_counter == 1
    try:
        if outermost:
            root.write_json(_HOLDER, asdict(_this_process()))
        yield
    finally:
        # Gone before the lock is: a name that is read belongs to whoever holds it, or to a dead process.
        if outermost:
            root.delete(_HOLDER)
        lock.release()


def holder(root: Root) -> Holder | None:
    """Return the process that wrote its name beside the lock and may hold it; None where none can be named.

    A process of this host that is dead is never named; of another host's, nothing is known but its word.
    """
    try:
        record = root.read_json(_HOLDER)
        found = Holder(**{k: record[k] for k in Holder.__slots__}) if record else None
    except (StorageError, TypeError, KeyError):
        return None
    return found if found and (found.host != socket.gethostname() or _alive(found.pid)) else None


def _locked(root: Root) -> str:
    return f"another run writes to {root.uri}{_said(holder(root))}: wait until it has ended"


def _said(found: Holder | None) -> str:
    return (
        ""
        if found is None
        else f" ({found.command}, process {found.pid} on {found.host}, since {found.since})"
    )


def _this_process() -> Holder:
    since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return Holder(os.getpid(), socket.gethostname(), since, _command(sys.argv))


def _command(argv: list[str]) -> str:
    """Return the program and its subcommand; options and their values may hold a secret."""
    words = [word for word in argv[1:2] if word.replace("-", "").isalpha() and not word.startswith("-")]
    return " ".join([Path(argv[0]).name, *words])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    return True
