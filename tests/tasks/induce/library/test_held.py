"""What is held below a root: trajectories, verdicts and libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.root import Root
from tasks.induce.library.build import build
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.replay.verify import RecordedReplay
from tasks.induce.skills.actions import GRANULARITIES, Granularity
from tasks.induce.skills.skill import skill_told
from tasks.induce.trajectories.record import digest_of, trajectory_of
from tests.support.induce.recordings import row
from tests.support.induce.runs import add_bed, mooring


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


RUNS = [replace(add_bed(f"g{n}", "b"), success=said) for n, said in enumerate((True, False, None))]


def named(held: HeldVerdicts, domain: str) -> list[str]:
    return [one.trajectory_id for one in held.successful(domain, RUNS)]


def test_without_a_judge_s_verdicts_the_files_word_counts(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    held.put("d", RUNS, declared=True)
    assert named(held, "d") == ["g0"]
    assert list(tmp_path.iterdir()) == []


def test_a_judge_s_verdicts_count_until_the_files_word_is_taken_again(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    held.put("d", [replace(one, success=one.trajectory_id != "g0") for one in RUNS], declared=False)
    held.put("e", [], declared=False)
    assert (named(held, "d"), named(held, "e"), named(held, "f")) == (["g1", "g2"], [], ["g0"])
    held.put("d", RUNS, declared=True)
    assert (named(held, "d"), named(held, "e")) == (["g0"], [])


def test_a_run_that_is_forgotten_is_in_no_verdict(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    for domain in ("d", "e"):
        held.put(domain, [replace(one, success=True) for one in RUNS], declared=False)
    held.forget("g1")
    assert named(held, "d") == named(held, "e") == ["g0", "g2"]


LIBRARY = build(
    "harbour", [mooring("h0", "t0"), mooring("h1", "t1", "Auk", "C3", 55)], RecordedReplay()
)  # fmt: skip


def test_a_library_is_read_as_it_was_written(tmp_path: Path) -> None:
    held = HeldLibraries(Root(tmp_path))
    held.put("harbour", LIBRARY, "these runs")
    assert held.skills("harbour") == LIBRARY.skills
    assert any(skill.near for skill in LIBRARY.skills)
    assert held.made_of() == {"harbour": "these runs"}


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_library_s_granularity_is_kept(tmp_path: Path, granularity: Granularity) -> None:
    held = HeldLibraries(Root(tmp_path))
    library = build("harbour", [mooring("h0", "t0")], RecordedReplay(), granularity=granularity)
    held.put("harbour", library, "these runs")
    assert held.skills("harbour") == library.skills
    assert [skill_told(skill.told()) for skill in library.skills] == library.skills
    assert {skill.granularity for skill in held.skills("harbour")} == {granularity}


def test_a_file_of_before_near_skills_were_named_is_one_of_windows_without_them(tmp_path: Path) -> None:
    held = HeldLibraries(Root(tmp_path))
    held.put("harbour", LIBRARY, "these runs")
    (file,) = (tmp_path / "induced" / "skills").iterdir()
    table = pl.read_parquet(file).drop("near", "granularity").to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(table.replace_schema_metadata({"schema_version": "4"}), file)
    assert held.domains() == {"harbour": 3}
    assert held.skills("harbour") == [replace(skill, near=()) for skill in LIBRARY.skills]
