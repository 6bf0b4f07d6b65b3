"""The bench of compose on a real index, and its statistics worked out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.evaluate.compose.bench import (
    MethodRun,
    against,
    feedback,
    groups,
    paraphrase_row,
    rounds_of,
    run_method,
    simulated,
    summarise_methods,
    summary,
    when_right,
)
from tasks.evaluate.compose.hidden_rows import (
    drawn_step,
    hidden_servers,
    left_out_share,
    most_needed,
    needing,
    require_servers,
    rows_by_id,
    transfer,
    without_categories,
    without_gold,
)
from tasks.evaluate.compose.measures import Needed, NeededStep, Planned, PlannedStep, measured
from tasks.evaluate.compose.methods import METHODS, Asking, MadePlan
from tasks.evaluate.compose.requests import CategorySet, KnownRequest
from tests.support.processes import slow_but


def run_of(requests: list[KnownRequest], **columns: list[float]) -> MethodRun:
    """Return a run with some measures on the first requests."""
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    few = requests[: len(values)]
    return MethodRun(few, [MadePlan(Planned(()))] * len(few), values, [1.0] * len(few))


def test_a_row_has_means_groups_tokens_and_paraphrases(asking: Asking, requests: list[KnownRequest]) -> None:
    methods = {name: METHODS[name] for name in ("gold-steps", "whole")}
    runs = {name: run_method(asking, method, requests) for name, method in methods.items()}
    others = [request.reworded() for request in requests if request.paraphrase]
    again = {name: run_method(asking, m, others) for name, m in methods.items()}
    gold, whole = summarise_methods(runs, again, "whole")
    assert (gold["queries"], gold["needed"], gold["steps"], gold["da"], gold["srvr@1"]) == (3, 2, 2, 1, 1)
    assert (whole["da"], whole["da±1"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert whole["against"] is None
    assert gold["against"]["da"]["difference"] == pytest.approx(2 / 3)
    assert list(gold["by_difficulty"]) == ["easy", "medium"]
    assert whole["by_difficulty"]["easy"]["da"] == 0.5
    assert {tag: part["queries"] for tag, part in gold["by_tag"].items()} == {"context": 2, "none": 1}
    assert {c: part["queries"] for c, part in gold["by_category"].items()} == {
        "Drinks": 2, "Baking": 1, "Messages": 1, "Shopping": 1,
    }  # fmt: skip
    assert 0 < gold["tokens"]["chosen"] < gold["tokens"]["all"]
    assert whole["tokens"] is None
    assert (gold["paraphrase"]["queries"], gold["paraphrase"]["agreement"]) == (1, 1)


def rounded(found: Any) -> Any:  # noqa: ANN401
    """Return figures without their last bits, which depend on the order in which they were added."""
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    return round(found, 9) if isinstance(found, float) else found


@pytest.mark.slow
def test_requests_in_another_order_have_the_same_figures(
    asking: Asking, requests: list[KnownRequest]
) -> None:
    shuffled = [requests[k] for k in (2, 0, 1)]
    rows = []
    for given in (requests, shuffled):
        runs = {name: run_method(asking, METHODS[name], given) for name in ("local-r1", "commas")}
        rows.append(summarise_methods(runs, {}, "commas")[0])
    for key in set(rows[0]) - {"ci95", "against", "median_ms", "p95_ms"}:
        assert rounded(rows[0][key]) == rounded(rows[1][key]), key


def test_what_a_request_does_not_say_is_left_out_of_its_means(requests: list[KnownRequest]) -> None:
    run = run_of(requests, da=[1, 0, 0])
    run.values[0]["plan"] = 1.0
    found = summary(run)
    assert (found["da"], found["plan"]) == (pytest.approx(1 / 3), 1)
    assert set(found["ci95"]) == {"da", "plan"}
    assert summary(run.among([]), intervals=False) == {"queries": 0, "needed": 0.0}


def test_agreement_is_the_share_with_the_same_verdict(requests: list[KnownRequest]) -> None:
    run = run_of(requests, da=[1, 1, 0])
    reworded = replace(run_of(requests[:2], da=[1, 0]), requests=requests[:2])
    found = paraphrase_row(run, reworded)
    assert (found["da"], found["original"]["da"], found["agreement"]) == (0.5, 1, 0.5)
    assert found["difference"]["da"] == -0.5


def test_p_is_raised_by_how_many_methods_are_compared(requests: list[KnownRequest]) -> None:
    many = [replace(requests[0], query_id=str(k)) for k in range(8)]
    base, better = run_of(many, da=[0.0] * 8), run_of(many, da=[1.0] * 6 + [0.0] * 2)
    one = against({"base": base, "a": better}, "base")["a"]["da"]
    two = against({"base": base, "a": better, "b": better}, "base")["a"]["da"]
    assert (one["wins"], one["losses"], one["difference"]) == (6, 0, 0.75)
    assert one["wilcoxon"]["differing"] == 6
    assert one["wilcoxon"]["p"] == pytest.approx(2 / 2**6)
    assert (one["p_adjusted"], two["p_adjusted"]) == (one["p"], 2 * one["p"])
    assert two["wilcoxon"]["p_adjusted"] == pytest.approx(4 / 2**6)


def test_difficulties_are_in_their_order(requests: list[KnownRequest]) -> None:
    named = [replace(r, difficulty=d) for r, d in zip(requests, ("hard", "", "easy"), strict=True)]
    found = groups(run_of(named, da=[1, 1, 0]), lambda request: [request.difficulty or "unknown"])
    assert list(found) == ["easy", "hard", "unknown"]


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


@pytest.fixture(scope="module")
def rows(asking: Asking) -> dict[str, frozenset[str]]:
    return rows_by_id(asking.index, CategorySet())


def test_the_drawn_step_depends_on_the_id_and_the_seed_alone(requests: list[KnownRequest]) -> None:
    many = [replace(requests[1], query_id=str(k)) for k in range(300)]
    assert [drawn_step(r, 42) for r in many] == [drawn_step(r, 42) for r in many]
    counts = Counter(drawn_step(r, 42) for r in many)
    assert set(counts) == {0, 1, 2}
    assert min(counts.values()) > 70
    assert [drawn_step(r, 42) for r in many] != [drawn_step(r, 43) for r in many]
    assert {hidden_servers(r, 42) for r in many} == {
        frozenset({"eve/prices"}), frozenset({"dan/grocer"}), frozenset({"fay/telegram", "gus/mail"}),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["gold-steps", "gold-dense", "local-r1"])
def test_confidence_falls_where_nothing_serves_a_step(
    asking: Asking, requests: list[KnownRequest], name: str
) -> None:
    run = run_method(asking, METHODS[name], requests)
    found = without_gold(asking, METHODS[name], run, 42)
    assert (found["requests"], found["steps"]) == (3, 2 if name == "local-r1" else 3)  # it cuts one too few
    assert found["auroc_served"] > (0.6 if name == "local-r1" else 0.8)
    assert found["right"] + found["wrong"] == sum(len(made.plan.steps) for made in run.made)


def test_requests_without_servers_are_named(requests: list[KnownRequest]) -> None:
    bare = [replace(step, servers=None) for step in requests[1].needed.steps]
    unknown = replace(requests[1], needed=replace(requests[1].needed, steps=tuple(bare)))
    with pytest.raises(WrongInput, match="--without-gold: query 'b'"):
        require_servers([requests[0], unknown], "--without-gold")


def test_a_category_is_taken_whatever_its_letter_case(
    rows: dict[str, frozenset[str]], requests: list[KnownRequest]
) -> None:
    taken = without_categories(rows, ["drinks", "Messages"])
    assert taken.ids == {"ann/kettle", "cat/coffee", "fay/telegram", "gus/mail"}
    assert [r.query_id for r in needing(requests, taken)] == ["a", "b", "c"]
    assert most_needed(requests, rows, 2) == ["Drinks", "Baking"]
    with pytest.raises(WrongInput, match=r"'Sports'.*Baking, Drinks"):
        without_categories(rows, ["Sports"])


def test_a_share_is_drawn_by_the_seed(rows: dict[str, frozenset[str]]) -> None:
    drawn = [left_out_share(rows, 0.25, seed).ids for seed in range(20)]
    assert {len(ids) for ids in drawn} == {2}
    assert drawn[0] == left_out_share(dict(reversed(rows.items())), 0.25, 0).ids
    assert len(set(drawn)) > 10
    for share in (0, 1, -0.1):
        with pytest.raises(WrongInput, match="--leave-out"):
            left_out_share(rows, share, 42)


@pytest.mark.parametrize("name", slow_but({"commas"}, ["commas", "gold-search"]))
def test_transfer_measures_the_requests_that_need_the_rows(
    asking: Asking, requests: list[KnownRequest], rows: dict[str, frozenset[str]], name: str
) -> None:
    run = run_method(asking, METHODS[name], requests)
    found = transfer(asking, METHODS[name], run, without_categories(rows, ["Baking"]))
    none = transfer(asking, METHODS[name], run.among(["c"]), without_categories(rows, ["Baking"]))
    assert (found["queries"], found["unserved"], found["rows"], found["kind"]) == (1, 1, 2, "categories")
    assert found["with"]["da"] == found["without"]["da"]  # neither cuts by what is served
    assert found["without"]["srvr@1"] == found["with"]["srvr@1"] - 0.5
    assert (none["queries"], none["da"]) == (0, None)


def test_of_requests_without_servers_a_drawn_share_may_concern_each(
    rows: dict[str, frozenset[str]], requests: list[KnownRequest]
) -> None:
    unknown = [replace(request, main=()) for request in requests]
    assert needing(unknown, left_out_share(rows, 0.2, 42)) == unknown
    assert [r.query_id for r in needing(unknown, without_categories(rows, ["Baking"]))] == ["a"]
