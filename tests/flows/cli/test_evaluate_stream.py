"""`skillery evaluate stream`: which skills are offered at each step of recorded runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.support.command import Ask, lines_of
from tests.support.induce.learning import written
from tests.support.induce.runs import add_bed, mooring

BEDS = ("Fern corner", "Rose row", "Lily pond", "Herb steps")
RUNS = [
    run
    for number, (bed, boat) in enumerate(zip(BEDS, ("Petrel", "Auk", "Gannet", "Tern"), strict=True))
    for run in (
        add_bed(f"g{number}", f"bed-{number}", bed),
        mooring(f"h{number}", f"boat-{number}", boat, f"B{number}"),
    )
]


@pytest.fixture
def runs(tmp_path: Path) -> str:
    return str(written(tmp_path / "runs.jsonl", RUNS))


def test_a_run_that_was_seen_before_in_other_tasks_is_offered_as_a_skill(
    root: str, runs: str, ask: Ask
) -> None:
    found = ask.told("evaluate", "stream", runs, "--root", root, "--method", "default", "--method", "random")
    default, random = found["methods"]
    assert found["trajectories"] == {
        "read": 8, "successful": 8, "judged": 0, "repeated": 0, "unread": {},
    }  # fmt: skip
    assert (default["steps"], found["steps"]) == (36, 36)
    # The first run of each domain has nothing to be offered; of the others the last steps are too short.
    assert default["usable@5"] == default["reachable"] == pytest.approx(3 * (4 + 2) / 36)
    assert default["decisions"] < 1
    assert default["against"] is None
    assert random["against"]["difference"] >= 0
    assert set(default["by_domain"]) == {"greenhouse", "harbour"}


def test_a_report_has_all_methods_and_the_paper_s_tables_and_each_step_what_the_first_method_offers(
    root: str, runs: str, ask: Ask, tmp_path: Path
) -> None:
    out, folder = tmp_path / "steps.jsonl", tmp_path / "report"
    done = ask("evaluate", "stream", runs, "--root", root, "--out", str(out), "--report", str(folder))
    assert done.code == 0, done.stderr
    rows = lines_of(out)
    assert [(row["trajectory_id"], row["t"]) for row in rows] == [
        (run.trajectory_id, step.t) for run in RUNS for step in run.steps
    ]
    assert rows[0]["suggested"] == []
    last = next(row for row in rows if (row["trajectory_id"], row["t"]) == ("h3", 0))
    assert {"find_berth"} <= {skill["actions"][0]["name"] for skill in last["suggested"]}
    assert "8 trajectories, 8 of them successful, 36 steps" in done.stdout
    found, told = (
        json.loads((folder / "stream.json").read_text("utf-8")),
        (folder / "stream.md").read_text("utf-8"),
    )
    assert found["steps"] == 36
    assert {"default", "sgdr", "sgdr alpha 0.3", "sgdr without MMR"} <= {
        row["method"] for row in found["methods"]
    }
    assert all(f"## Table {number}" in told for number in (2, 3, 4))
    assert pl.read_parquet(folder / "stream.parquet").filter(method="sgdr", measure="usable@5").height == 36


def test_verdicts_that_are_turned_teach_the_wrong_runs(root: str, runs: str, ask: Ask) -> None:
    whole, turned = (
        ask.told("evaluate", "stream", runs, "--root", root, "--turned", share)["methods"][0]
        for share in ("0", "0.6")
    )
    assert turned["usable@5"] < whole["usable@5"]


@pytest.fixture
def warm(root: str, tmp_path: Path, ask: Ask) -> str:
    """Return a root that has learned the first two runs of each domain, and kept one that failed."""
    failed = replace(mooring("f", "boat-f"), success=False)
    path = written(tmp_path / "before.jsonl", [*RUNS[:4], failed])
    assert ask("induce", str(path), "--root", root).code == 0
    return root


def test_what_a_root_has_learned_serves_from_the_first_question_on(
    warm: str, ask: Ask, tmp_path: Path
) -> None:
    path = written(tmp_path / "later.jsonl", RUNS[4:])
    arguments = ["evaluate", "stream", str(path), "--root", warm]
    cold = ask.told(*arguments)
    found = ask.told(*arguments, "--warm", warm, "--report", str(tmp_path / "report"))
    assert cold["warm"] is None
    assert found["warm"] == {"root": warm, "taught": 4, "left_out": 0}
    assert cold["methods"][0]["usable@5"] == pytest.approx((4 + 2) / 18)
    assert found["methods"][0]["usable@5"] == pytest.approx(2 * (4 + 2) / 18)
    # The granularities of a report begin with the same.
    rows = {(row["granularity"], row["method"]): row for row in found["granularity"]}
    assert rows["window", "default"]["usable@5"] == found["methods"][0]["usable@5"]


def test_runs_of_the_stream_do_not_answer_their_own_questions(warm: str, runs: str, ask: Ask) -> None:
    arguments = ["evaluate", "stream", runs, "--root", warm]
    cold = ask.told(*arguments)
    found = ask.told(*arguments, "--warm", warm)
    assert found["warm"] == {"root": warm, "taught": 0, "left_out": 4}
    assert found["methods"] == cold["methods"]
    assert f"learned before: 0 of {warm}; 4 in it left out" in ask(*arguments, "--warm", warm).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "/nowhere/steps.jsonl"], "cannot be written"),
        (["--warm", "/nowhere"], "--warm /nowhere holds no trajectories: name a root in which"),
    ],
)
def test_wrong_use_is_told_in_a_line(root: str, runs: str, ask: Ask, arguments: list[str], said: str) -> None:
    assert said in ask.refused("evaluate", "stream", runs, "--root", root, *arguments)


def test_a_file_without_a_run_to_measure_is_told(root: str, ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"trajectory_id": "x"}\n', "utf-8")
    assert "nothing to measure" in ask.refused("evaluate", "stream", str(path), "--root", root)
