"""Learning, call after call on one root: runs and verdicts in any order give the same libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.root import Root
from tasks.induce.library.held import KeptTrajectories
from tasks.induce.trajectories.record import Trajectory
from tests.support.induce.learning import learned
from tests.support.induce.runs import add_bed, mooring, tool_run

RUNS = [
    mooring("h0", "boat-0"),
    mooring("h1", "boat-1", "Auk", "C3", 55),
    add_bed("g0", "bed-0"),
    add_bed("g1", "bed-1", "Rose row", "peat"),
]


def learn(folder: Path, *runs: Trajectory) -> dict[str, Any]:
    """Learn skills of runs in a root below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return learned(Root(folder / "root"), folder, runs)


def libraries(folder: Path) -> dict[str, bytes]:
    """Return the files of the libraries that were learned in a folder."""
    held = folder / "root" / "induced"
    return {str(file.relative_to(held)): file.read_bytes() for file in held.rglob("*") if file.is_file()}


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Trajectory], list[list[Trajectory]]]:
    """Draw judged runs, and calls in which each comes as such, and without its verdict before or after."""
    judged = [replace(run, success=draw(st.booleans())) for run in RUNS]
    coming = [
        one
        for run in judged
        for one in [run, *draw(st.lists(st.sampled_from([run, replace(run, success=None)]), max_size=2))]
    ]
    shuffled = draw(st.permutations(coming))
    size = draw(st.integers(2, len(shuffled)))
    return judged, [shuffled[start : start + size] for start in range(0, len(shuffled), size)]


@pytest.mark.slow
@settings(max_examples=10)
@given(arrivals())
def test_a_verdict_gives_the_same_libraries_whenever_it_comes(
    tmp_path_factory: pytest.TempPathFactory, given: tuple[list[Trajectory], list[list[Trajectory]]]
) -> None:
    judged, calls = given
    at_once, later = tmp_path_factory.mktemp("at-once"), tmp_path_factory.mktemp("later")
    learn(at_once, *judged)
    told = [learn(later, *runs)["trajectories"] for runs in calls]
    assert libraries(later) == libraries(at_once)
    assert sum(one["new"] for one in told) == len(RUNS)
    assert sum(one["judged"] for one in told) <= len(RUNS)
    assert sum(one["read"] for one in told) == sum(map(len, calls))
    assert all(one["failed"] == {} for one in told)


def test_a_run_without_a_verdict_waits_and_teaches_when_it_is_judged(tmp_path: Path) -> None:
    waiting = [replace(run, success=None) for run in RUNS]
    first, second, third = (learn(tmp_path, *runs) for runs in (waiting, RUNS[:3], waiting))
    assert first["trajectories"] | {"failed": 0} == {
        "read": 4, "new": 4, "judged": 0, "unchanged": 0, "waiting": 4, "redacted": 0,
        "forgotten": 0, "failed": 0, "unread": [],
    }  # fmt: skip
    assert first["skills"]["new"] == 0
    assert second["trajectories"]["judged"] == 3
    assert second["skills"]["new"] > 0
    # A run without its verdict changes nothing where the verdict is known.
    assert (third["trajectories"]["unchanged"], third["windows"]) == (4, 0)


@pytest.mark.parametrize("change", [{"success": False}, {"final": "other"}, {"success": None, "task": "x"}])
def test_another_verdict_or_content_is_refused_and_the_first_stays(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    learn(tmp_path, *RUNS)
    before = libraries(tmp_path)
    told = learn(tmp_path, replace(RUNS[0], **change))
    assert told["trajectories"]["failed"] == {"two-contents": 1}
    assert libraries(tmp_path) == before


def test_a_changed_run_is_refused_though_it_brings_the_verdict(tmp_path: Path) -> None:
    learn(tmp_path, replace(RUNS[0], success=None))
    assert learn(tmp_path, replace(RUNS[0], final="other"))["trajectories"]["failed"] == {"two-contents": 1}


def test_parts_are_written_once(tmp_path: Path) -> None:
    learn(tmp_path, replace(RUNS[0], success=None))
    parts = {file: file.read_bytes() for file in (tmp_path / "root" / "trajectories").iterdir()}
    learn(tmp_path, RUNS[0])
    assert {file: file.read_bytes() for file in parts} == parts
    assert len(list((tmp_path / "root" / "trajectories").iterdir())) == 2


def test_no_file_of_a_root_holds_a_secret_that_a_run_had(tmp_path: Path) -> None:
    token = "ghp_" + "k9Qw7Zr5Tx3Vb1Nm8Lp2Sd4Fg6Hj0Kc7Ye9U"
    runs = [mooring("h0", "boat-0", boat=token), mooring("h1", "boat-1")]
    told = learn(tmp_path, *runs)
    again = learn(tmp_path, *runs)
    held = KeptTrajectories(Root(tmp_path / "root")).of("harbour")
    assert (told["trajectories"]["redacted"], again["trajectories"]["redacted"]) == (1, 0)
    assert again["trajectories"]["unchanged"] == 2
    assert held[0].task == "Moor the [redacted:github-token-1] tonight."
    assert told["skills"]["new"] > 0
    for file in (tmp_path / "root").rglob("*.parquet"):
        assert token not in pl.read_parquet(file).write_json(), file


def test_skills_that_more_tasks_did_are_changed_and_others_are_not(tmp_path: Path) -> None:
    first = learn(tmp_path, RUNS[0], RUNS[2])["skills"]
    same = learn(tmp_path, RUNS[0])["skills"]
    more = learn(tmp_path, RUNS[1])["skills"]  # of the harbour alone
    calls = [("find_berth", {"boat": "Gull"}, "none"), ("leave", {}, "ok")]
    other = learn(tmp_path, tool_run("Go.", calls, name="h9", task_id="t9"))["skills"]
    assert (first["changed"], first["unchanged"], first["retired"]) == (0, 0, 0)
    assert same == {"new": 0, "changed": 0, "unchanged": 0, "retired": 0}  # no library was built again
    assert more == {"new": 0, "changed": 3, "unchanged": 0, "retired": 0}
    # Three tasks have begun with a message now, which the descriptions of the two skills that do so say.
    assert other == {"new": 1, "changed": 2, "unchanged": 1, "retired": 0}
