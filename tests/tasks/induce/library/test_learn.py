"""Learning, call after call on one root, and what is held there: trajectories, verdicts and libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.root import Root
from tasks.induce.library.build import build
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.replay.verify import RecordedReplay
from tasks.induce.skills.actions import GRANULARITIES, Granularity
from tasks.induce.skills.skill import skill_told
from tasks.induce.trajectories.record import Trajectory, digest_of, trajectory_of
from tests.support.induce.learning import learned
from tests.support.induce.recordings import row
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


@pytest.mark.parametrize(
    ("first", "change"),
    [
        (True, {"success": False}),
        (True, {"final": "other"}),
        (True, {"success": None, "task": "x"}),
        (None, {"final": "other"}),  # though it brings the verdict
    ],
)
def test_another_verdict_or_content_is_refused_and_the_first_stays(
    tmp_path: Path, first: bool | None, change: dict[str, Any]
) -> None:
    learn(tmp_path, replace(RUNS[0], success=first), *RUNS[1:])
    before = libraries(tmp_path)
    told = learn(tmp_path, replace(RUNS[0], **change))
    assert told["trajectories"]["failed"] == {"two-contents": 1}
    assert libraries(tmp_path) == before


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


def test_the_row_with_a_verdict_counts_whatever_its_part_is_called(tmp_path: Path) -> None:
    kept = KeptTrajectories(Root(tmp_path))
    for number in range(8):  # parts are named by their content: some verdicts come first by name, some last
        waiting = row(trajectory_id=f"r{number}", success=None)
        judged = row(trajectory_id=f"r{number}", success=True)
        kept.add([(waiting, trajectory_of(waiting))])
        kept.add([(judged, trajectory_of(judged))])
        assert kept.digests()[f"r{number}"] == digest_of(judged)
    assert [one.success for one in kept.of("garden")] == [True] * 8


def test_the_state_of_a_domain_is_that_of_runs_that_were_judged_at_once(tmp_path: Path) -> None:
    later, at_once = (KeptTrajectories(Root(tmp_path / name)) for name in ("later", "at-once"))
    waiting, judged, other = row(success=None), row(), row(trajectory_id="run-2")
    for rows in ([waiting, other], [judged]):
        later.add((each, trajectory_of(each)) for each in rows)
    at_once.add((each, trajectory_of(each)) for each in (other, judged))
    assert later.states() == at_once.states()
    assert later.of("garden") == at_once.of("garden")


JUDGED = [replace(add_bed(f"g{n}", "b"), success=said) for n, said in enumerate((True, False, None))]


def named(held: HeldVerdicts, domain: str) -> list[str]:
    return [one.trajectory_id for one in held.successful(domain, JUDGED)]


MOORINGS = [mooring("h0", "t0"), mooring("h1", "t1", "Auk", "C3", 55)]


def test_a_judge_s_verdicts_count_until_the_files_word_is_taken_again(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    held.put("d", JUDGED, declared=True)
    assert named(held, "d") == ["g0"]
    assert list(tmp_path.iterdir()) == []
    held.put("d", [replace(one, success=one.trajectory_id != "g0") for one in JUDGED], declared=False)
    held.put("e", [], declared=False)
    assert (named(held, "d"), named(held, "e"), named(held, "f")) == (["g1", "g2"], [], ["g0"])
    held.forget("g1")
    assert named(held, "d") == ["g2"]
    held.put("d", JUDGED, declared=True)
    assert (named(held, "d"), named(held, "e")) == (["g0"], [])


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_library_is_read_as_it_was_written(tmp_path: Path, granularity: Granularity) -> None:
    held = HeldLibraries(Root(tmp_path))
    library = build("harbour", MOORINGS, RecordedReplay(), granularity=granularity)
    held.put("harbour", library, "these runs")
    assert held.skills("harbour") == library.skills
    assert any(skill.near for skill in library.skills) == (granularity == "window")
    assert [skill_told(skill.told()) for skill in library.skills] == library.skills
    assert {skill.granularity for skill in held.skills("harbour")} == {granularity}
    assert held.made_of() == {"harbour": "these runs"}


def test_a_file_of_before_near_skills_were_named_is_one_of_windows_without_them(tmp_path: Path) -> None:
    held, library = HeldLibraries(Root(tmp_path)), build("harbour", MOORINGS, RecordedReplay())
    held.put("harbour", library, "these runs")
    (file,) = (tmp_path / "induced" / "skills").iterdir()
    table = pl.read_parquet(file).drop("near", "granularity").to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(table.replace_schema_metadata({"schema_version": "4"}), file)
    assert held.domains() == {"harbour": 3}
    assert held.skills("harbour") == [replace(skill, near=()) for skill in library.skills]
