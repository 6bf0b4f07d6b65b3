"""What feedback changes, and the simulation of carrying plans out, on plans worked out by hand."""

from __future__ import annotations

import pytest

from tasks.evaluate.compose.bench import MethodRun
from tasks.evaluate.compose.feedback import feedback, rounds_of, simulated, when_right
from tasks.evaluate.compose.measures import Needed, NeededStep, Planned, PlannedStep, measured
from tasks.evaluate.compose.methods import MadePlan
from tasks.evaluate.compose.requests import KnownRequest

NEEDED = Needed(tuple(NeededStep(frozenset({s}), frozenset({s[0]})) for s in ("a1", "b1")))


def run(*plans: str, jaccards: tuple[tuple[float, ...], ...] | None = None) -> MethodRun:
    """Return a run whose plans have a step for each word, which is the id chosen; a `-` is a gap."""
    requests = [KnownRequest(str(k), "", "easy", None, NEEDED) for k in range(len(plans))]
    made = [
        MadePlan(
            Planned(
                tuple(
                    PlannedStep((s,), (frozenset({s[0]}),), f"{s} text", gap=s == "-") for s in plan.split()
                )
            ),
            jaccards=jaccards[k] if jaccards else (),
        )
        for k, plan in enumerate(plans)
    ]
    values = [measured(one.plan, NEEDED) for one in made]
    return MethodRun(requests, made, values, [1.0] * len(plans))


def test_requests_are_told_apart_by_what_feedback_did_to_their_number_of_steps() -> None:
    before, after = run("a1", "a1 b1", "a1 x1", "a1 x1 y1"), run("a1 b1", "a1", "a1 b1", "a1 x1 y1 z1")
    found = feedback(after, before)
    assert [found[name]["queries"] for name in ("corrected", "spoilt", "right")] == [1, 1, 1]
    assert found["corrected"]["srvr@1"] == {"before": 0.5, "after": 1, "p": 1}
    assert found["right"]["catr@1"]["after"] == 1
    assert [(c["query_id"], c["before"], c["after"], c["nearer"]) for c in found["counts"]] == [
        ("0", 1, 2, True), ("1", 2, 1, False), ("3", 3, 4, False),
    ]  # fmt: skip
    assert found["counts"][0]["steps_after"] == ["a1 text", "b1 text"]
    assert (found["tests"]["da"]["wins"], found["tests"]["da"]["losses"]) == (1, 1)


def test_recalls_are_given_where_the_number_is_right() -> None:
    found = when_right(run("a1 x1", "a1", "a1 b1"))
    assert (found["queries"], found["srvr@1"]) == (2, 0.75)
    assert when_right(run("a1")) == {"queries": 0}


def test_hints_that_no_round_changed_count_as_the_same() -> None:
    runs = {"local-r0": run("a1", "a1"), "local-r2": run("a1 b1", "a1", jaccards=((0.2, 0.6), (0.4,)))}
    first, last = rounds_of(runs)
    assert (first["round"], first["jaccard"], first["changed"]) == (0, None, None)
    assert (last["round"], last["jaccard"], last["changed"], last["da"]) == (2, pytest.approx(0.8), 1, 0.5)


def test_a_simulation_is_the_same_for_a_seed_and_within_the_rates() -> None:
    plans = run(*["a1 b1"] * 40)
    found = simulated(plans, 42)
    assert found == simulated(plans, 42)
    assert found != simulated(plans, 43)
    assert (found["queries"], found["steps"], found["da"]) == (30, 2, 1)
    assert 0.8 < found["ses"][0] < 0.95
    assert 0.64 < found["ccr"][0] < 0.9025
    assert found["ses"] == found["ses_right"]  # all were chosen rightly


def test_a_gap_and_a_wrong_choice_are_never_carried_out() -> None:
    gaps, wrong, empty = simulated(run("- -"), 1), simulated(run("a1 x1"), 1), simulated(run("", "a1"), 1)
    assert (gaps["ses"], gaps["ccr"]) == ([0, 0, 0], [0, 0, 0])
    assert wrong["ccr_right"] == [0, 0, 0]
    assert 0.4 <= wrong["ses_right"][0] <= 0.475
    assert empty["ccr"][2] <= 0.5
