from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.commands.operate import forget_target, roll_back_root, root_status
from flows.run_record import new_run_id, recorded
from storage.errors import GateRefused, NotPublished, StorageError, UnknownDocument, WrongInput
from storage.locks import Holder, holder, writer_lock
from storage.root import Root
from storage.state import SILENT, last_good_runs, read_run, read_runs, runs_under_way, write_run
from tests.support.command import Ask
from tests.support.paths import PROJECT
from tests.support.roots.skill_root import SkillRoot

RUN, NEXT = "20260203T021500-abcdef", "20260204T021500-abcdef"
# A run that says where it is and then waits to be killed, at the moment that it is told.
_RUN = """
import sys, time
from flows.run_record import recorded
from storage import state
from storage.locks import Holder, holder, writer_lock
from storage.root import Root

root, run, moment = Root(sys.argv[1]), sys.argv[2], sys.argv[3]

def reached(at):
    if at == moment:
        print("there", flush=True)
        time.sleep(600)

def slow(module, name):
    real = getattr(module, name)
    def then(*given, **named):
        done = real(*given, **named)
        reached(name)
        return done
    setattr(module, name, then)

import flows.run_record as record_of
for name in ("write_heartbeat", "write_run", "note_good", "_count"):
    slow(record_of, name)
with writer_lock(root, run=run):
    reached("locked")
    with recorded(root, run, ["dir:a"], flow="nightly") as record, record.stage("crawl"):
        reached("crawl")
"""


def killed(root: Root, moment: str, run: str = RUN) -> None:
    """Run a night, and kill it at a moment."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, root.uri, run, moment], stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    if moment == "crawl":
        (alive,) = runs_under_way(root)
        assert (alive["state"], alive["flow"], alive["specs"]) == ("running", "nightly", ["dir:a"])
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_ids_of_runs_of_one_second_sort_by_time() -> None:
    made = [new_run_id() for _ in range(100)]
    assert sorted(made, key=lambda run_id: run_id[:-1]) == made
    assert all(re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{6}", run_id) for run_id in made)


@pytest.mark.parametrize(
    ("moment", "seen"),
    [
        ("locked", []),
        ("crawl", ["died"]),
        ("write_run", []),  # its end is known
        pytest.param("write_heartbeat", ["died"], marks=pytest.mark.slow),
        pytest.param("_count", ["died"], marks=pytest.mark.slow),
        pytest.param("note_good", [], marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_is_told_at_once_and_settled_by_the_next(
    moment: str, seen: list[str], tmp_path: Path
) -> None:
    root = Root(tmp_path)
    killed(root, moment)
    assert [run["state"] for run in root_status(root)["under_way"]] == seen
    with writer_lock(root, run=NEXT), recorded(root, NEXT, ["dir:a"], flow="nightly"):
        (alive,) = root_status(root)["under_way"]
        assert (alive["run_id"], alive["state"]) == (NEXT, "running")
    assert root.files("state/running") == []
    ended = [(run["run_id"], run["state"]) for run in read_runs(root)]
    before = {"locked": []}.get(moment, [(RUN, "died" if seen else "complete")])
    assert ended == [(NEXT, "complete"), *before]
    assert last_good_runs(root)["nightly"]["run_id"] == NEXT
    if seen:
        record = read_run(root, RUN)
        assert record is not None
        assert "without a word" in record["message"]


def test_a_run_that_was_killed_after_its_record_was_kept_is_the_last_good_one(tmp_path: Path) -> None:
    root = Root(tmp_path)
    with writer_lock(root, run=RUN), recorded(root, RUN, [], flow="nightly"):
        left = root.read(f"state/running/{RUN}.json")
    root.write(f"state/running/{RUN}.json", left)
    root.write_json("state/last_good.json", {"flows": {}})
    with writer_lock(root, run=NEXT), suppress(StorageError), recorded(root, NEXT, [], flow="nightly"):
        raise StorageError("the disk is full")
    assert last_good_runs(root)["nightly"]["run_id"] == RUN
    assert root.files("state/running") == []


def test_a_run_that_is_silent_for_two_minutes_or_holds_no_lock_has_died(tmp_path: Path) -> None:
    root, now = Root(tmp_path), datetime.now(UTC)
    with writer_lock(root, run=RUN), recorded(root, RUN, [], flow="nightly"):
        assert [one["state"] for one in runs_under_way(root, now + SILENT / 2)] == ["running"]
        assert [one["state"] for one in runs_under_way(root, now + 2 * SILENT)] == ["died"]
    with recorded(root, NEXT, [], flow="nightly"):
        assert [one["state"] for one in runs_under_way(root)] == ["died"]
    assert runs_under_way(root) == []


def test_the_silence_of_another_machine_is_measured_by_the_clock_of_the_root(tmp_path: Path) -> None:
    root, later = Root(tmp_path), datetime.now(UTC) + 2 * SILENT
    with writer_lock(root, run=RUN), recorded(root, RUN, [], flow="nightly"):
        holds = root.read_json("state/locks/writer.json") or {}
        root.write_json("state/locks/writer.json", {**holds, "host": "elsewhere"})
        assert [one["state"] for one in runs_under_way(root, later)] == ["running"]
        os.utime(tmp_path / f"state/running/{RUN}.json", (0, 0))
        assert [one["state"] for one in runs_under_way(root)] == ["died"]


def test_a_run_that_ends_while_it_is_looked_at_has_not_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    lock, run = writer_lock(root, run=RUN), recorded(root, RUN, [], flow="nightly")
    with ExitStack() as ending:
        ending.enter_context(lock)
        ending.enter_context(run)

        def looked_at(place: Root) -> Holder | None:
            ending.close()
            return holder(place)

        monkeypatch.setattr("storage.state.holder", looked_at)
        assert runs_under_way(root) == []
    assert [one["state"] for one in read_runs(root)] == ["complete"]


@contextmanager
def raising(error: Exception) -> Iterator[None]:
    yield
    raise error


@pytest.mark.parametrize("waits", [KeyboardInterrupt(), None])
def test_what_comes_after_a_run_neither_loses_its_record_nor_hides_its_error(
    waits: KeyboardInterrupt | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    monkeypatch.setenv("SKILLERY_OPENLINEAGE", f"file:{tmp_path / 'told'}")

    def ended(*_: object) -> None:
        raise waits or StorageError("no space left")

    place = "flows.run_record.Lineage.end" if waits else "flows.run_record.write_run"
    monkeypatch.setattr(place, ended)
    with (
        pytest.raises(KeyboardInterrupt if waits else GateRefused),
        recorded(root, RUN, [], flow="nightly"),
        nullcontext() if waits else raising(GateRefused("rows is 1", [])),
    ):
        pass
    assert [one["state"] for one in read_runs(root)] == (["complete"] if waits else [])
    assert bool(root.files("state/running")) != bool(waits)


def test_a_heartbeat_tells_the_stage_and_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setattr("flows.run_record._HEARTBEAT_SECONDS", 0.02)
    root = Root(tmp_path)
    with writer_lock(root, run=RUN), recorded(root, RUN, [], flow="nightly") as record, record.stage("crawl"):
        until = time.monotonic() + 20
        while not (found := root_status(root)["under_way"]) or found[0]["doing"] != "crawl":
            assert time.monotonic() < until
        printed = ask("status", "--root", str(tmp_path)).stdout
    assert f"nightly {RUN}: running, crawl; last heard of at" in printed
    record_ = read_run(root, RUN)
    assert record_ is not None
    assert (record_["state"], record_["doing"]) == ("complete", None)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (GateRefused("rows is 1", [{"check": "rows", "passed": False, "value": 1, "limit": 2}]), "refused"),
        (OSError("disk"), "failed"),
    ],
)
def test_how_a_run_ended_and_where_is_kept(error: BaseException, state: str, tmp_path: Path) -> None:
    root = Root(tmp_path)
    with pytest.raises(type(error)), recorded(root, RUN, [], flow="nightly") as record, record.stage("parse"):
        raise error
    kept = json.loads(root.read(f"state/runs/{RUN}.json"))
    assert (kept["state"], kept["doing"]) == (state, "parse")
    assert kept["started_at"] <= kept["ended_at"]
    assert last_good_runs(root) == {}


def test_a_quiet_night_renews_the_age_that_status_asks_for(
    served_bakery: SkillRoot, tmp_path: Path, ask: Ask
) -> None:
    folder = shutil.copytree(served_bakery.root.folder, tmp_path / "root", symlinks=True)
    young = ["status", "--max-age", "1", "--root", str(folder)]
    assert ask(*young).code == 1  # published on a night of last year
    with recorded(Root(folder), RUN, [], flow="nightly"):
        pass
    found = ask(*young)
    assert (found.code, f"last good night: {RUN}, 0.0 h ago" in found.stdout) == (0, True), found


def test_roots_of_before_know_their_last_good_run(tmp_path: Path) -> None:
    root, old = Root(tmp_path), {"specs": [], "sources": [], "seconds": {"crawl": 2.0, "index": 1.5}}
    for run, state, day in ((RUN, "complete", 3), (NEXT, "failed", 4)):
        began = f"2026-02-0{day}T02:15:00+00:00"
        write_run(root, {**old, "run_id": run, "state": state, "started_at": began})
    good = last_good_runs(root)["nightly"]
    assert good == {"run_id": RUN, "ended_at": "2026-02-03T02:15:00+00:00", "seconds": 3.5}


@pytest.mark.parametrize(
    "mistake", [lambda root: roll_back_root(root, "v-none"), lambda root: forget_target(root, "a/b")]
)
def test_a_mistake_is_no_run(mistake: Callable[[Root], object], tmp_path: Path) -> None:
    root = Root(tmp_path)
    with pytest.raises((WrongInput, UnknownDocument, NotPublished)):
        mistake(root)
    assert (read_runs(root), runs_under_way(root)) == ([], [])
