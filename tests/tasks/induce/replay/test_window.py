"""The windows that skills are learned from: each is done again by its skill."""

from __future__ import annotations

from tasks.induce.bindings.fits import misfit
from tasks.induce.replay.window import source_windows
from tests.support.induce.recordings import renewal
from tests.support.induce.runs import add_bed


def test_each_skill_of_a_run_has_the_window_that_it_does_again() -> None:
    for run in (renewal("ada"), add_bed("g1", "a")):
        found = list(source_windows(run))

        assert found
        for moment, body, window in found:
            assert window.source == (run.trajectory_id, moment.t)
            assert (window.length, window.domain) == (len(body), run.domain)
            assert misfit(body, run.task, window.steps, window.start) is None
