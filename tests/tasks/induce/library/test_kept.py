"""Kept trajectories: each content once, the one with a verdict before the one without."""

from __future__ import annotations

from pathlib import Path

from storage.root import Root
from tasks.induce.library.kept import KeptTrajectories
from tasks.induce.trajectories.record import digest_of, trajectory_of
from tests.support.induce.rows import row


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
