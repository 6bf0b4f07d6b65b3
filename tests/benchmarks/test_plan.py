from __future__ import annotations

from pathlib import Path

import pytest

from storage.root import Root
from storage.state import write_run
from tests.benchmarks.plan import README, SIZES, STAGES, build, needs, plan, rates_of_readme, rates_of_root

_TEXT = README.read_text("utf-8")


def test_the_readme_shows_what_the_plan_prints() -> None:
    assert plan(rates_of_readme(_TEXT)) in _TEXT


def test_where_the_rates_were_measured_the_model_gives_what_was_measured() -> None:
    rates = rates_of_readme(_TEXT)
    assert build(rates, rates.memory_at, rates.cores).seconds == pytest.approx(27 + 200 + 431 + 424)


def test_more_workers_take_no_longer_and_more_skills_no_less() -> None:
    rates = rates_of_readme(_TEXT)
    for skills in SIZES:
        seconds = [build(rates, skills, workers).seconds for workers in (1, 2, 8, 64)]
        assert seconds == sorted(seconds, reverse=True)
    shares = [max(needs(rates, skills, 8).values()) for skills in SIZES]
    assert shares == sorted(shares)


def test_a_root_gives_the_rates_that_its_runs_have_measured(tmp_path: Path) -> None:
    root, measured = Root(tmp_path), rates_of_readme(_TEXT)
    with pytest.raises(SystemExit, match="has measured anything"):
        rates_of_root(root, measured)
    source = {"source": "dir:a", "new": 500, "changed": 0, "listed": 500}
    write_run(root, {
        "run_id": "20260301T020000-abcdef", "state": "complete", "flow": "nightly", "specs": [],
        "started_at": "2026-03-01T02:00:00+00:00", "sources": [source], "documents": 500, "vectors_new": 500,
        "seconds": {"crawl": 1.0, "refine": 5.0, "parse": 20.0, "index": 10.0},
    })  # fmt: skip
    found = rates_of_root(root, measured)
    assert {stage: round(500 * found.seconds[stage], 1) for stage in STAGES} == {
        "crawl": 1.0, "refine": 5.0, "parse": 20.0, "index": 10.0,
    }  # fmt: skip
    assert 0 < found.disk < 100
