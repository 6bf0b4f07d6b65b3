from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.errors import Locked, Unreachable
from storage.locks import Holder, holder, leased, writer_lock
from storage.root import Root
from storage.s3 import Bucket

_HOLD = """
import sys
from storage.locks import writer_lock
from storage.root import Root
with writer_lock(Root(sys.argv[1])):
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@contextmanager
def other_process(root: Path | str, *, code: str = _HOLD) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the lock, unless this one does."""
    held = holder(Root(root)) is None
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, str(root)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert (process.stdout.readline() == "held\n") is held
            yield process
        finally:
            process.kill()


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return Root(tmp_path if request.param == "folder" else request.getfixturevalue("bucket"))


def test_it_is_entered_again_within_a_process_and_kept_until_the_outermost_leaves(root: Root) -> None:
    with writer_lock(root):
        with writer_lock(Root(root.uri)):
            pass
        assert holder(root) is not None
        with other_process(root.uri) as second:
            assert second.stderr is not None
            assert "Locked" in second.stderr.read()
    assert holder(root) is None
    with other_process(root.uri) as third:
        said = rf"another run writes to {root.uri} \(-c, process {third.pid} on .+, since 20.+Z\): "
        with pytest.raises(Locked, match=said), writer_lock(root):
            pass
        found = holder(root)
        assert found is not None
        assert (found.pid, found.host) == (third.pid, socket.gethostname())
        third.communicate()
    with writer_lock(root), writer_lock(Root(root.at("backfill/date=2026-01-02"))):
        root.write("a", b"")


def test_a_killed_holder_is_named_no_more_and_the_lock_is_taken_over(tmp_path: Path) -> None:
    root = Root(tmp_path)
    with other_process(tmp_path) as dead:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert (tmp_path / "state/locks/writer.json").exists()
        assert holder(root) is None
        with writer_lock(root):
            found = holder(root)
            assert found is not None
            assert found.pid == os.getpid()
    assert holder(root) is None


def test_a_dead_process_beside_a_living_holder_does_not_mislead(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with other_process(tmp_path):
        record = {"pid": ended.pid, "host": socket.gethostname(), "since": "then", "command": "old"}
        Root(tmp_path).write_json("state/locks/writer.json", record)
        with pytest.raises(Locked) as caught, writer_lock(Root(tmp_path)):
            pass
    assert "(old, process" not in str(caught.value)
    assert f"{ended.pid}" not in str(caught.value).removeprefix(f"another run writes to {tmp_path}")


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": 1, "more": 2}'])
def test_what_cannot_be_read_of_a_holder_names_none(tmp_path: Path, damaged: bytes) -> None:
    Root(tmp_path).write("state/locks/writer.json", damaged)
    assert holder(Root(tmp_path)) is None
    with writer_lock(Root(tmp_path)):
        pass


def test_a_holder_on_another_host_is_named_on_its_word(tmp_path: Path) -> None:
    other = Holder(2**22 + 1, "elsewhere", "2026-01-01T00:00:00Z", "skillery run")
    Root(tmp_path).write_json("state/locks/writer.json", {f: getattr(other, f) for f in other.__slots__})
    assert holder(Root(tmp_path)) == other


def test_the_command_is_named_without_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/skillery", "run", "--source", "git+https://u:secret@h/r"])
    with writer_lock(Root(tmp_path)):
        assert json.loads(Root(tmp_path).read("state/locks/writer.json"))["command"] == "skillery run"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/skillery", "--root=secret"])
    with writer_lock(Root(tmp_path)):
        assert json.loads(Root(tmp_path).read("state/locks/writer.json"))["command"] == "skillery"


def test_it_waits_as_long_as_it_is_asked_to(tmp_path: Path) -> None:
    with other_process(tmp_path) as other:
        with pytest.raises(Locked), writer_lock(Root(tmp_path), wait=0.1):
            pass
        assert other.stdin is not None
        letting_go = threading.Timer(0.3, other.stdin.close)
        letting_go.start()
        with pytest.raises(KeyError), writer_lock(Root(tmp_path), wait=60):
            raise KeyError  # an error inside lets go
        letting_go.join()
    with other_process(tmp_path), writer_lock(Root(tmp_path / "another")):
        pass


def test_a_full_disk_does_not_keep_a_writer_from_starting(tmp_path: Path) -> None:
    root = Root(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))  # a byte fits and no more
    try:
        with writer_lock(root):
            assert holder(root) is None
            root.delete("what/makes/room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


_LEASE = "state/locks/writer.json"


@pytest.fixture
def place(bucket: str) -> Bucket:
    return Bucket(bucket)


def until(happened: Callable[[], bool]) -> None:
    """Wait for what must happen, however slow the machine is."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_died_is_named_to_who_finds_its_lease_with_what_to_do(bucket: str) -> None:
    code = _HOLD.replace("(Root(sys.argv[1]))", "(Root(sys.argv[1]), run='20260101T000000-abcdef')")
    with other_process(bucket, code=code) as dead:
        pass
    who = rf"\(-c, run 20260101T000000-abcdef, process {dead.pid} on {socket.gethostname()}, since 20.+Z\)"
    with pytest.raises(Locked, match=rf"a run that is dead holds {bucket} {who}: .+ --wait 2"):
        writer_lock(Root(bucket)).__enter__()
    said: list[str] = []
    with pytest.raises(Locked), writer_lock(Root(bucket), wait=1.5, say=lambda line: said.append(str(line))):
        pass
    assert len(said) == 1
    assert said[0].startswith("waiting: a run that is dead")


def test_a_holder_that_could_not_renew_goes_on_if_nobody_took_its_lease(
    place: Bucket, outage: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unreachable, "AFTER", 0.3)
    impatient = Bucket(place.uri)
    with leased(impatient, {"name": "one"}, lambda take: take(), seconds=1) as held:
        assert held
        outage(2.8)
        time.sleep(1.2)
        with pytest.raises(Unreachable):
            impatient.write("while it is stale", b"")
        time.sleep(1.8)
        place.write("after", b"")
    assert place.read(_LEASE) == b"{}"


def test_a_holder_renews_its_lease_each_time_in_other_bytes(place: Bucket) -> None:
    seen = set[bytes]()

    def turns() -> int:
        seen.add(place.read(_LEASE))
        return len(seen)

    with leased(place, {"name": "one"}, lambda take: take(), seconds=4) as held:
        assert held
        until(lambda: turns() == 3)
    assert {json.loads(turn)["name"] for turn in seen} == {"one"}


def test_a_lease_is_held_though_the_answer_to_its_writing_was_lost(
    place: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_if = Bucket.write_if
    monkeypatch.setattr(Bucket, "write_if", lambda *given: write_if(*given) and None)
    with leased(place, {"name": "one"}, lambda take: take(), seconds=60) as held:
        assert held


def test_what_a_killed_holder_left_is_taken_when_it_is_stale_and_not_before(place: Bucket) -> None:
    place.write(_LEASE, b'{"name": "dead", "turn": "1"}')
    with leased(place, {"name": "two"}, lambda take: take(), seconds=60) as held:
        assert not held
    with leased(place, {"name": "two"}, lambda take: until(take) or True, seconds=1) as held:
        assert held
        assert json.loads(place.read(_LEASE))["name"] == "two"


def test_who_lost_it_to_another_writes_nothing_more_and_leaves_the_others_lease(place: Bucket) -> None:
    with leased(place, {"name": "silent"}, lambda take: take(), seconds=8) as held:
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
