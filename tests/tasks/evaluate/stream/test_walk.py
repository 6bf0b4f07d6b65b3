"""The online stream: each step is asked before its trajectory is learned from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tasks.evaluate.stream.report import (
    ALPHAS,
    NOTE,
    RELEVANCE_WEIGHTS,
    along,
    decision_means,
    draw_stream,
    run_table,
    stream_markdown,
    summarise_runs,
    variants,
)
from tasks.evaluate.stream.walk import MEASURES, Decision, Stream, has_succeeded, reachable
from tasks.induce.skills.actions import GRANULARITIES, Body
from tasks.induce.skills.windows import decision_points
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.retrieve.suggest.methods import METHODS, Offer, Offered, SkillQuestion
from tests.support.induce.runs import add_bed, kept, mooring, tool_run
from tests.support.models.word_models import WordEncoder

PETREL, AUK = mooring("h1", "a"), mooring("h2", "b", "Auk", "C3", 55)


def all_there_is(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    support = offered.support(asked.task_id)
    return [Offer(skill, 0.0) for skill in range(len(offered.skills)) if support[skill]]


def nothing(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    return []


def walked(stream: Stream, *runs: Trajectory, method: str = "") -> list[Decision]:
    methods = {"it": METHODS[method] if method else all_there_is}
    return [decision for _, decision in stream.walk(runs, methods)]


@pytest.fixture
def stream() -> Stream:
    return Stream(WordEncoder().encode)


def test_nothing_is_usable_in_the_first_trajectory(stream: Stream) -> None:
    found = walked(stream, PETREL)
    assert [(one.trajectory_id, one.task_id, one.domain, one.t) for one in found] == [
        ("h1", "a", "harbour", t) for t in (0, 1, 2, 4)
    ]
    assert {(one.usable, one.begun, one.reachable, one.walked) for one in found} == {(0, False, False, True)}


@pytest.mark.parametrize("method", ["", "default", "sgdr", "popular"])
def test_an_agent_goes_on_behind_the_longest_skill_that_is_usable(stream: Stream, method: str) -> None:
    found = walked(stream, PETREL, AUK, method=method)[4:]
    # find, hold, take: a skill does all three, one the last two, none of two actions the last; the receipt
    # stands alone behind the message. The agent decides at the first of the three and at the receipt.
    assert [one.usable for one in found] == [3, 2, 0, 0]
    assert [one.walked for one in found] == [True, False, False, True]
    assert [one.begun for one in found] == [True, True, False, False]
    assert decision_means(found)["decisions"] == 0.5
    assert decision_means(found)["usable@5"] == 0.5


def test_a_skill_that_fits_inside_one_that_was_used_saves_nothing_more(stream: Stream) -> None:
    calls = [(name, {"code": "B7"}, "ok") for name in ("untie", "turn", "leave", "greet", "moor", "tie")]
    whole = tool_run("Sail", calls, name="h1", task_id="a")
    later = tool_run("Sail", calls, name="h2", task_id="b")
    found = walked(stream, whole, later)[6:]
    # Windows have 5 actions at most: behind the first five the last step is decided for itself.
    assert [one.usable for one in found] == [5, 5, 4, 3, 2, 0]
    assert [one.walked for one in found] == [True, False, False, False, False, True]


def test_without_skills_an_agent_decides_at_each_step(stream: Stream) -> None:
    found = [decision for _, decision in stream.walk([PETREL, AUK], {"none": nothing})]
    assert decision_means(found)["decisions"] == 1
    assert decision_means(found)["usable@5"] == decision_means(found)["action@5"] == 0
    assert [one.reachable for one in found[4:]] == [True, True, False, False]


def test_skills_that_come_from_the_own_task_alone_are_neither_offered_nor_reachable(stream: Stream) -> None:
    again = mooring("h2", "a")
    for method in METHODS:
        found = walked(Stream(stream.encode), PETREL, again, method=method)[4:]
        assert not any(one.usable or one.begun or one.reachable for one in found), method


def test_single_actions_are_begun_but_never_usable(stream: Stream) -> None:
    single = Stream(stream.encode, teaches=partial(decision_points, granularity="action"))
    found = walked(single, PETREL, AUK)[4:]
    assert [one.usable for one in found] == [0] * 4
    assert [one.begun for one in found] == [True] * 4
    assert not any(one.reachable for one in found)
    assert decision_means(found)["decisions"] == 1
    alone = Stream(stream.encode, teaches=partial(decision_points, granularity="action"), least=1)
    assert [(one.usable, one.reachable) for one in walked(alone, PETREL, AUK)[4:]] == [(1, True)] * 4


def test_domains_share_no_skills(stream: Stream) -> None:
    elsewhere = Trajectory("p1", "c", "port", PETREL.task, True, PETREL.steps, PETREL.final)
    assert not any(one.usable for one in walked(stream, PETREL, elsewhere))
    assert set(stream.offered) == {"harbour", "port"}


@pytest.mark.parametrize("success", [False, None])
def test_only_successful_trajectories_have_decisions_and_are_learned_from(
    stream: Stream, success: bool | None
) -> None:
    failed = Trajectory("h0", "z", "harbour", PETREL.task, success, PETREL.steps, PETREL.final)
    found = walked(stream, failed, AUK)
    assert {one.trajectory_id for one in found} == {"h2"}
    assert not any(one.reachable for one in found)
    assert not has_succeeded(failed)


def test_the_first_method_is_told_at_each_step_of_each_trajectory(stream: Stream) -> None:
    told: list[tuple[str, int, int]] = []

    def note(trajectory: Trajectory, step: Step, skills: Sequence[Body]) -> None:
        told.append((trajectory.trajectory_id, step.t, len(skills)))

    failed = Trajectory("h3", "c", "harbour", PETREL.task, False, PETREL.steps, PETREL.final)
    noting = Stream(stream.encode, suggested=note)
    methods = {"all": all_there_is, "none": nothing}
    found = list(noting.walk([PETREL, AUK, failed], methods))
    assert told == [("h1", t, 0) for t in range(5)] + [
        (name, t, 3) for name in ("h2", "h3") for t in range(5)
    ]
    assert [decision for name, decision in found if name == "all"] == walked(stream, PETREL, AUK)


def test_steps_that_fall_out_are_no_decisions_and_runs_without_any_are_walked_past(stream: Stream) -> None:
    first, *rest = PETREL.steps
    thought = Step(9, first.observation, Action("think", {"thought": "hm"}))
    run = Trajectory("h1", "a", "harbour", PETREL.task, True, (thought, first, *rest), PETREL.final)
    assert [one.t for one in walked(Stream(stream.encode), run)] == [0, 1, 2, 4]
    assert walked(stream, tool_run("nothing", []), PETREL) == walked(Stream(stream.encode), PETREL)


def test_on_pages_the_skills_of_another_task_are_usable(stream: Stream) -> None:
    found = walked(stream, add_bed("g1", "a"), add_bed("g2", "b", "Palm house", "peat"), method="default")[5:]
    assert [one.usable for one in found] == [5, 4, 3, 2, 0]
    assert [one.walked for one in found] == [True, False, False, False, False]


def decision(usable: int, *, begun: bool, reachable: bool, walked: bool) -> Decision:
    return Decision("h1", "a", "harbour", 0, usable, begun, reachable, walked)


def test_a_decision_adds_one_or_nothing_to_each_measure() -> None:
    one = decision(3, begun=True, reachable=True, walked=False)
    other = decision(0, begun=False, reachable=True, walked=True)
    assert [one.value(measure) for measure in MEASURES] == [1, 1, 0, 1]
    assert [other.value(measure) for measure in MEASURES] == [0, 0, 1, 1]
    assert list(decision_means([one, other, other, other]).values()) == [0.25, 0.25, 0.75, 1]
    assert list(decision_means([]).values()) == [0, 0, 0, 0]


def test_reachable_is_what_any_skill_of_another_task_would_do() -> None:
    offered, run = Offered(WordEncoder().encode), mooring("h1", "a")
    own, other = mooring("h2", "a"), mooring("h3", "b", "Auk", "C3", 55)

    def found() -> list[bool]:
        return [reachable(offered, run, kept(run), place) for place in range(5)]

    assert found() == [False] * 5
    offered.learn(decision_points(own))
    assert found() == [False] * 5
    offered.learn(decision_points(other))
    assert found() == [True, True, False, False, False]


def found(*names: str) -> dict[str, Any]:
    """Return what the command returns: the n-th method is usable at n of 10 steps of each of two domains."""
    runs = {
        name: [
            Decision(f"r{t}", f"t{t % 5}", domain, t, 2 * (t < n), t < n, True, t >= n)
            for domain in ("greenhouse", "harbour") for t in range(10)
        ]
        for n, name in enumerate(names)
    }  # fmt: skip
    granularity = [
        {"granularity": each, "method": "default", **decision_means(runs[names[1]])}
        for each in reversed(GRANULARITIES)
    ]
    return {
        "trajectories": {"read": 7, "successful": 6, "repeated": 0, "unread": {}}, "warm": None, "steps": 20,
        "sgdr": {"granularity": "window", "candidates": None, "judge": "declared"},
        "methods": summarise_runs(runs, names[0]), "granularity": granularity,
    }  # fmt: skip


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of the table under each heading, without its head."""
    parts = [part.splitlines() for part in text.split("\n## ")[1:]]
    return {
        lines[0]: [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:] if line]
        for lines in parts
    }


def test_a_report_has_methods_domains_and_granularities() -> None:
    text = stream_markdown(cold := found("default", "sgdr"))
    held = tables(text)
    rows = held["Methods"]
    assert [row[:5] for row in rows] == [
        ["default", "0.000", "0.000", "1.000", "1.000"], ["sgdr", "0.100", "0.100", "0.900", "1.000"]
    ]  # fmt: skip
    assert rows[0][6:] == ["", ""]
    assert rows[1][6] == "-0.100"
    low, _, high = rows[1][5].partition(" to ")
    assert 0 <= float(low) <= 0.1 <= float(high)
    assert "| Method | greenhouse | harbour |" in text
    assert held["By domain: usable@5"][1] == ["sgdr", "0.100", "0.100"]
    assert [row[:2] for row in held["Table 4: granularity"]] == [[each, "default"] for each in GRANULARITIES]
    # A library that was not empty is named where its figures are.
    warm = cold | {"warm": {"root": "./shop", "taught": 12, "left_out": 3}}
    said = "Before the first, 12 trajectories of ./shop were learned; 3 of the stream are in it and were not."
    assert said in stream_markdown(warm)
    assert "were learned" not in text


def test_the_variants_stand_in_the_layout_of_the_papers_tables() -> None:
    held = tables(stream_markdown(found("default", *variants())))
    assert [row[0] for row in held["Table 2: task and state"]] == ["0", "0.3", "0.5", "0.7", "1"]
    assert [row[2] for row in held["Table 2: task and state"]] == [f"0.{n}00" for n in range(1, 6)]
    assert [row[0] for row in held["Table 3: MMR"]] == ["no MMR", "0.5", "0.7", "0.9"]
    said, no = "34.6 / 35.9 / 32.3", "not stated"
    assert [row[5] for row in held["Table 2: task and state"]] == [no, no, said, no, no]
    assert [row[5] for row in held["Table 3: MMR"]] == [no, no, said, no]


def test_variants_that_were_not_measured_have_no_row_and_the_note_says_what_the_figures_are() -> None:
    text = stream_markdown(found("default", "state"))
    assert [row[0] for row in tables(text)["Table 2: task and state"]] == ["0"]
    assert tables(text)["Table 3: MMR"] == []
    assert NOTE in text
    assert "7 trajectories, 20 steps" in text


ROWS = [
    {"method": f"method {n}", "along": (curve := [(1, 0.0), (25, 0.1 * n), (50, 0.05 * n)]),
     "by_domain": {"map": {"along": curve}}} for n in range(9)
]  # fmt: skip


def test_each_method_is_named_in_the_legend_of_a_picture_of_its_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # words stay words
    draw_stream(ROWS, tmp_path / "stream.svg")
    drawn = (tmp_path / "stream.svg").read_text("utf-8")
    assert drawn.startswith("<?xml")
    assert [row["method"] for row in ROWS if str(row["method"]) not in drawn] == []
    assert "usable@5" in drawn
    assert "map" in drawn


def decisions(
    usable: Sequence[int], tasks: Sequence[str] = "", domains: Sequence[str] = ""
) -> list[Decision]:
    return [
        Decision(f"r{n}", tasks[n] if tasks else f"t{n}", domains[n] if domains else "d", n,
                 2 * held, bool(held), True, not held)
        for n, held in enumerate(usable)
    ]  # fmt: skip


def test_a_row_has_the_measures_of_all_steps_and_of_each_domain() -> None:
    (row,) = summarise_runs({"it": decisions([1, 0, 1, 1], domains="xxyx")}, "it")
    assert [row[measure] for measure in MEASURES] == [0.75, 0.75, 0.25, 1]
    assert (row["method"], row["steps"], row["against"]) == ("it", 4, None)
    assert list(row["by_domain"]) == ["x", "y"]
    assert {d: (held["steps"], held["usable@5"]) for d, held in row["by_domain"].items()} == {
        "x": (3, pytest.approx(2 / 3)),
        "y": (1, 1),
    }
    assert json.loads(json.dumps(row))["method"] == "it"


def test_intervals_are_over_tasks() -> None:
    usable = [1, 1, 1, 1, 0, 0, 0, 0] * 4
    (alone,) = summarise_runs({"it": decisions(usable)}, "it")
    (together,) = summarise_runs({"it": decisions(usable, tasks="aaaabbbb" * 4)}, "it")
    low, high = alone["ci95"]["usable@5"]
    assert 0 < low < 0.5 < high < 1
    assert together["ci95"]["usable@5"] == [0, 1]  # both tasks, or one of them twice
    assert alone["ci95"]["reachable"] == [1, 1]


def test_a_method_is_compared_over_tasks_with_the_baseline() -> None:
    tasks = "aaabcdefgh"  # one long task counts once
    better, worse = decisions([1] * 10, tasks), decisions([0, 0, 0, 1, 1, 1, 1, 0, 0, 0], tasks)
    rows = {
        row["method"]: row for row in summarise_runs({"base": better, "it": worse, "same": better}, "base")
    }
    assert rows["base"]["against"] is None
    against = rows["it"]["against"]
    assert against["difference"] == 0.5  # of eight tasks
    low, high = against["ci95"]
    assert 0 < low < 0.5 < high < 1
    assert against["adjusted_p"] == pytest.approx(2 * against["p"])  # of two methods
    assert rows["same"]["against"]["difference"] == 0
    assert rows["same"]["against"]["adjusted_p"] == 1
    # Without a baseline nothing is compared.
    assert [row["against"] for row in summarise_runs({"it": worse[:2]}, "other")] == [None]
    assert [row["against"] for row in summarise_runs({"base": [], "it": []}, "base")] == [None, None]


def test_the_curve_along_the_stream_has_the_mean_of_all_steps_so_far() -> None:
    assert along(decisions([1, 0, 0, 1])) == [(1, 1), (2, 0.5), (3, pytest.approx(1 / 3)), (4, 0.5)]
    long = along(decisions([1, 0] * 500))
    assert len(long) == 40
    assert long[0][0] == 25
    assert long[-1] == (1000, 0.5)
    assert along([]) == []


def test_each_row_of_the_tables_is_a_method_of_one_name_that_can_be_walked(stream: Stream) -> None:
    assert {*ALPHAS.values(), *RELEVANCE_WEIGHTS.values()} == set(variants())
    assert {"sgdr", "task", "state"} == set(variants()) & set(METHODS)
    found = list(stream.walk([PETREL, AUK], variants()))
    for name in variants():
        assert [one.usable for named, one in found if named == name] == [0, 0, 0, 0, 3, 2, 0, 0]


def test_a_run_holds_each_measure_of_each_step() -> None:
    run = run_table({"it": decisions([1, 0, 1, 1])})
    assert run.columns[-2:] == ["measure", "value"]
    assert run.filter(measure="usable@5").sort("t")["value"].to_list() == [1, 0, 1, 1]
    assert run["query"].n_unique() == 4
