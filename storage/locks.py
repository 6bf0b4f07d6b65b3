"""Locks: a root has one writer, and the lock names it."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import Locked, SkilleryError, StorageError, Unreachable
from storage.folder import Folder
from storage.root import Root

if TYPE_CHECKING:
    from storage.s3 import Bucket

log = logging.getLogger(__name__)
LOCK = "state/locks/writer.lock"
_HOLDER = "state/locks/writer.json"
# Given up where the disk is full: what makes room there, or goes back, writes a little first.
RESERVE = "state/locks/reserve"
RESERVE_BYTES = 1_000_000
_PLENTY = 200 * RESERVE_BYTES  # bytes that must be free for a reserve to be made


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a root's writer lock; `since` is its UTC time in ISO form, `run` its run's id."""

    pid: int
    host: str
    since: str
    command: str
    run: str = ""


@contextmanager
def writer_lock(
    root: Root, wait: float = 0, *, spare: bool = False, run: str = "",
    say: Callable[[str], object] = log.info,
) -> Iterator[None]:  # fmt: skip
    """Hold the root's writer lock; it is released however the process dies.

    The system releases a folder's lock at once. A bucket's is a lease that others may take when its holder
    has been silent for `SECONDS`, after which that one can write nothing more unless nobody took it.

    Another process is waited for `wait` seconds; below 0: until it lets go; `say` is told who it is, at first
    and each minute. With `spare` a full disk is worth the reserve that the lock keeps: the work is small, or
    makes room.

    Raises:
        Locked: Another process writes to this root; the message says which, if that is known.
    """

    def taken(take: Callable[[], bool]) -> bool:
        return _taken(take, wait, lambda: say(f"waiting: {_locked(root)}"))

    if isinstance(root.place, Folder):
        held = _file_lock(root, taken, _this_process(run), spare=spare)
    else:
        held = leased(root.place, asdict(_this_process(run)), taken)
    with held as had:
        if not had:
            raise Locked(_locked(root))
        yield


def _taken(take: Callable[[], bool], wait: float, waiting: Callable[[], object]) -> bool:
    until, told = time.monotonic() + (wait if wait >= 0 else math.inf), -math.inf
    while not take():
        now = time.monotonic()
        if now >= until:
            return False
        if now - told >= _SECONDS_BETWEEN_LINES:
            waiting()
            told = now
        time.sleep(min(_POLL, until - now))
    return True


@contextmanager
def _file_lock(
    root: Root, taken: Callable[[Callable[[], bool]], bool], holder: Holder, *, spare: bool
) -> Iterator[bool]:
    import filelock  # noqa: PLC0415 (a search takes no lock)

    path = root.folder / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    # One instance a path and process: a flow within a flow enters again, another process does not.
    lock = filelock.FileLock(path, is_singleton=True, thread_local=False)

    def take() -> bool:
        with suppress(filelock.Timeout):
            lock.acquire(blocking=False)
            return True
        return False

    if not taken(take):
        yield False
        return
    outermost = lock.lock_counter == 1
    try:
        if outermost:
            _sign(root, holder, spare=spare)
        yield True
    finally:
        # Gone before the lock is: a name that is read belongs to whoever holds it, or to a dead process.
        if outermost:
            root.delete(_HOLDER)
        lock.release()


def _sign(root: Root, holder: Holder, *, spare: bool) -> None:
    """Write who holds the lock; make the reserve where there is room, and give it up where that is wanted."""
    with suppress(StorageError, OSError):
        free = shutil.disk_usage(root.folder).free
        if free > _PLENTY and not root.exists(RESERVE):
            root.write(RESERVE, bytes(RESERVE_BYTES))
        elif spare and free < RESERVE_BYTES:
            root.delete(RESERVE)
    with suppress(StorageError):  # the lock is held, whether or not it can be said by whom
        root.write_json(_HOLDER, asdict(holder))


def holder(root: Root) -> Holder | None:
    """Return the process that wrote its name beside the lock and may hold it; None where none can be named.

    A process of this host that is dead is never named; of another host's, nothing is known but its word.
    """
    found = _named(root)
    return None if found is None or _is_dead(found) else found


def _named(root: Root) -> Holder | None:
    try:
        record = {"run": "", **(root.read_json(_HOLDER) or {})}
        return Holder(**{k: record[k] for k in Holder.__slots__})
    except (StorageError, TypeError, KeyError):
        return None


def _is_dead(found: Holder) -> bool:
    return found.host == socket.gethostname() and not _alive(found.pid)


def age_at(root: Root, relative: str) -> timedelta | None:
    """Return how long ago a file was written by the clock of its place; None where that does not tell."""
    with suppress(SkilleryError):
        root.write(_CLOCK, b"")
        written, now = root.place.modified(relative), root.place.modified(_CLOCK)
        return now - written if now and written else None
    return None


def _locked(root: Root) -> str:
    found = _named(root)
    dead = found is not None and _is_dead(found)
    if found is None or (dead and isinstance(root.place, Folder)):  # the system has given a folder's lock on
        return f"another run writes to {root.uri}: wait until it has ended, or give --wait MINUTES"
    run = f"run {found.run}, " if found.run else ""
    who = f"({found.command}, {run}process {found.pid} on {found.host}, since {found.since})"
    lease = f"its lock is free {SECONDS:.0f} seconds after it last wrote to it"
    if dead:
        return f"a run that is dead holds {root.uri} {who}: {lease}; run again then, or give --wait 2"
    silent = "" if isinstance(root.place, Folder) else f"; if it is dead, {lease}"
    return f"another run writes to {root.uri} {who}: wait until it has ended, or give --wait MINUTES{silent}"


def _this_process(run: str) -> Holder:
    since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return Holder(os.getpid(), socket.gethostname(), since, _command(sys.argv), run)


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


# A lease that has not been renewed for so long, by the bucket's clock, may be taken: longer than a request is
# made again, so that none of a holder's is under way when another one is.
SECONDS = Unreachable.AFTER + 30

_FREE = b"{}"
_POLL, _SECONDS_BETWEEN_LINES = 1.0, 60.0
_CLOCK = "state/locks/clock"  # written to learn the bucket's time: the clocks of two machines may differ
_held: dict[str, Lease] = {}
_guard = threading.Lock()


class Lease:
    """One process' hold of a bucket's lease; entered again by the same process it is one hold."""

    def __init__(self, bucket: Bucket, record: dict[str, Any], seconds: float) -> None:
        self._bucket, self._seconds, self._record, self._tag = bucket, seconds, record, ""
        self._renewed, self._lost, self.depth = 0.0, False, 0
        self._ended, self._turn = threading.Event(), threading.Lock()
        self._renewer = threading.Thread(target=self._renew, daemon=True, name="skillery-lease")

    def take(self) -> bool:
        """Take the lease where it is free or stale, and renew it from then on; tell whether that was so."""
        head = self._bucket.head(_HOLDER)
        if head is not None and not self._free(head):
            return False
        if not self._put(None if head is None else head["e_tag"]):
            return False
        self._bucket.holds[self._bucket.uri] = self.held
        self._renewer.start()
        return True

    def held(self) -> bool:
        """Tell whether nobody else has it; where it may be stale, by writing it anew (or `Unreachable`)."""
        if self._stale():
            with self._turn:
                self._lost = self._lost or (self._stale() and not self._put(self._tag))
        return not self._lost

    def _stale(self) -> bool:
        return time.monotonic() - self._renewed >= self._seconds

    def give(self) -> None:
        """Let go, so that others need not wait until it is stale."""
        self._ended.set()
        self._renewer.join()
        del self._bucket.holds[self._bucket.uri]
        if not self._lost:
            with suppress(Unreachable):  # it will be stale; what the body raised tells more
                self._bucket.write_if(_HOLDER, _FREE, self._tag)

    def _free(self, head: dict[str, Any]) -> bool:
        if self._bucket.read(_HOLDER) == _FREE:
            return True
        self._bucket.write_if(_CLOCK, b"", (self._bucket.head(_CLOCK) or {}).get("e_tag"))
        now = self._bucket.modified(_CLOCK)
        return now is not None and (now - head["last_modified"]).total_seconds() > self._seconds

    def _renew(self) -> None:
        while not self._lost and not self._ended.wait(self._seconds / 6):
            with suppress(Unreachable), self._turn:  # it is ours until another has taken it
                self._lost = not self._put(self._tag)

    def _put(self, tag: str | None) -> bool:
        """Write the lease in place of the one with this tag; each time other bytes, so that tags differ."""
        started = time.monotonic()
        data = json.dumps({**self._record, "turn": uuid.uuid4().hex}).encode()
        new = self._bucket.write_if(_HOLDER, data, tag)
        if new is None and self._bucket.read(_HOLDER) == data:
            # Written, but the answer was lost on its way, and the second try found the first.
            new = (self._bucket.head(_HOLDER) or {}).get("e_tag")
        if new is None:
            return False
        self._tag, self._renewed = new, started
        return True


@contextmanager
def leased(
    bucket: Bucket, record: dict[str, Any], taken: Callable[[Callable[[], bool]], bool],
    seconds: float = SECONDS,
) -> Iterator[bool]:  # fmt: skip
    """Hold a bucket's lease, which says `record`; yields whether it could be had.

    `taken` tries to take it as often as it likes, and returns whether that succeeded. A holder that was
    silent for `seconds` may have lost it: from then on its bucket refuses to write.
    """
    had = taken(lambda: _enter(bucket, record, seconds))
    try:
        yield had
    finally:
        if had:
            _leave(bucket)


def _enter(bucket: Bucket, record: dict[str, Any], seconds: float) -> bool:
    with _guard:
        lease = _held.get(bucket.uri) or Lease(bucket, record, seconds)
        if lease.depth == 0 and not lease.take():
            return False
        lease.depth += 1
        _held[bucket.uri] = lease
        return True


def _leave(bucket: Bucket) -> None:
    with _guard:
        lease = _held[bucket.uri]
        lease.depth -= 1
        if lease.depth == 0:
            del _held[bucket.uri]
            lease.give()
