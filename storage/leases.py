"""The lock of a root in a bucket: an object that its holder renews, and others may take once it is stale."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from storage.bucket import Bucket
from storage.errors import Unreachable

SECONDS = 60.0
"""A lease that has not been renewed for so long, by the bucket's clock, may be taken."""

_FREE = b"{}"
_POLL = 1.0
_CLOCK = "state/locks/clock"  # written to learn the bucket's time: the clocks of two machines may differ
_held: dict[str, Lease] = {}
_guard = threading.Lock()


class Lease:
    """One process' hold of a lease; entered again by the same process it is one hold.

    Args:
        bucket: The root's.
        relative: The object.
        record: What it says while it is held: who holds it.
        seconds: As `SECONDS`.
    """

    def __init__(self, bucket: Bucket, relative: str, record: dict[str, Any], seconds: float) -> None:
        self._bucket, self._relative, self._seconds = bucket, relative, seconds
        self._record, self._tag = record, ""
        self._renewed, self._lost, self.depth = 0.0, False, 0
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True, name="skillery-lease")

    def take(self) -> bool:
        """Take the lease where it is free or stale, and renew it from then on; tell whether that was so."""
        head = self._bucket.head(self._relative)
        if head is not None and not self._free(head):
            return False
        if not self._put(None if head is None else head["e_tag"]):
            return False
        self._bucket.holds[self._bucket.uri] = self.held
        self._renewer.start()
        return True

    def held(self) -> bool:
        """Tell whether nobody else can have it: it was renewed a short time ago."""
        return not self._lost and time.monotonic() - self._renewed < self._seconds

    def give(self) -> None:
        """Let go, so that others need not wait until it is stale."""
        self._ended.set()
        self._renewer.join()
        del self._bucket.holds[self._bucket.uri]
        if not self._lost:
            self._bucket.write_if(self._relative, _FREE, self._tag)

    def _free(self, head: dict[str, Any]) -> bool:
        if self._bucket.read(self._relative) == _FREE:
            return True
        self._bucket.write_if(_CLOCK, b"", (self._bucket.head(_CLOCK) or {}).get("e_tag"))
        now = self._bucket.head(_CLOCK)
        return (
            now is not None and (now["last_modified"] - head["last_modified"]).total_seconds() > self._seconds
        )

    def _renew(self) -> None:
        while not self._lost and not self._ended.wait(self._seconds / 4):
            with suppress(Unreachable):  # it is ours until it is stale
                self._lost = not self._put(self._tag)

    def _put(self, tag: str | None) -> bool:
        """Write the lease in place of the one with this tag; each time other bytes, so that tags differ."""
        started = time.monotonic()
        data = json.dumps({**self._record, "turn": uuid.uuid4().hex}).encode()
        new = self._bucket.write_if(self._relative, data, tag)
        if new is None and self._bucket.read(self._relative) == data:
            # Written, but the answer was lost on its way, and the second try found the first.
            new = (self._bucket.head(self._relative) or {}).get("e_tag")
        if new is None:
            return False
        self._tag, self._renewed = new, started
        return True


@contextmanager
def leased(
    bucket: Bucket, relative: str, record: dict[str, Any], *, wait: float, seconds: float = SECONDS
) -> Iterator[bool]:
    """Hold a lease; yields whether it could be had.

    A holder that was silent for `seconds` may have lost it: from then on its bucket refuses to write.

    Args:
        bucket: The root's.
        relative: The object.
        record: Who holds it.
        wait: Seconds to wait for another process; below 0: until it lets go.
        seconds: How long a silent holder keeps it.
    """
    until = time.monotonic() + wait
    while not (had := _enter(bucket, relative, record, seconds)) and (wait < 0 or time.monotonic() < until):
        time.sleep(_POLL)
    try:
        yield had
    finally:
        if had:
            _leave(bucket)


def _enter(bucket: Bucket, relative: str, record: dict[str, Any], seconds: float) -> bool:
    with _guard:
        lease = _held.get(bucket.uri) or Lease(bucket, relative, record, seconds)
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
