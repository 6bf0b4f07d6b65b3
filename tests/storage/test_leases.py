from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from storage.errors import Locked
from storage.locks import holder, leased, writer_lock
from storage.root import Root
from storage.s3 import Bucket

_LEASE = "state/locks/writer.json"
_HOLD = """
import sys
from storage.locks import writer_lock
from storage.root import Root
with writer_lock(Root(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(bucket: str) -> Bucket:
    return Bucket(bucket)


def until(happened: Callable[[], bool]) -> None:
    """Wait for what must happen, however slow the machine is."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_process_holds_a_bucket_and_is_named_to_the_other(bucket: str) -> None:
    root = Root(bucket)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _HOLD, bucket], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Locked, match=rf"another run writes to {bucket} \(-c, process {other.pid}"):
            writer_lock(root).__enter__()
        other.communicate()
    assert other.returncode == 0
    with writer_lock(root):
        root.write("a", b"")


def test_a_flow_within_a_flow_enters_again_and_the_outer_one_lets_go(bucket: str) -> None:
    root = Root(bucket)
    with writer_lock(root):
        with writer_lock(Root(bucket)):
            pass
        assert holder(root) is not None
        root.write("a", b"")
    assert holder(root) is None
    with writer_lock(root), writer_lock(Root(root.at("backfill/date=2026-01-02"))):
        pass


def test_a_holder_renews_its_lease_each_time_in_other_bytes(place: Bucket) -> None:
    seen = set[bytes]()

    def turns() -> int:
        seen.add(place.read(_LEASE))
        return len(seen)

    with leased(place, _LEASE, {"name": "one"}, wait=0, seconds=4) as held:
        assert held
        until(lambda: turns() == 3)
    assert {json.loads(turn)["name"] for turn in seen} == {"one"}


def test_what_a_killed_holder_left_is_taken_when_it_is_stale_and_not_before(place: Bucket) -> None:
    place.write(_LEASE, b'{"name": "dead", "turn": "1"}')
    with leased(place, _LEASE, {"name": "two"}, wait=0, seconds=60) as held:
        assert not held
    with leased(place, _LEASE, {"name": "two"}, wait=-1, seconds=1) as held:
        assert held
        assert json.loads(place.read(_LEASE))["name"] == "two"


def test_who_lost_it_to_another_writes_nothing_more_and_leaves_the_others_lease(place: Bucket) -> None:
    with leased(place, _LEASE, {"name": "silent"}, wait=0, seconds=8) as held:
        assert held
        place.write("before", b"")
        theirs = b'{"name": "other", "turn": "1"}'
        tag = (place.head(_LEASE) or {})["e_tag"]
        while place.write_if(_LEASE, theirs, tag) is None:  # between two turns of the holder
            tag = (place.head(_LEASE) or {})["e_tag"]
        still_held = place.holds[place.uri]
        until(lambda: not still_held())
        with pytest.raises(Locked, match="silent for too long"):
            place.write("after", b"")
        with pytest.raises(Locked, match="silent for too long"):
            place.delete("before")
    assert place.read(_LEASE) == theirs
    assert place.files("", "") == ["before", _LEASE]
