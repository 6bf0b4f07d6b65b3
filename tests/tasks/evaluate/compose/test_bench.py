"""The bench of compose on a real index, and its statistics worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.evaluate.compose.bench import (
    MethodRun,
    against,
    groups,
    paraphrase_row,
    paraphrased,
    run_method,
    summarise_methods,
    summary,
)
from tasks.evaluate.compose.measures import Planned
from tasks.evaluate.compose.methods import METHODS, Asking, MadePlan
from tasks.evaluate.compose.requests import KnownRequest


def run_of(requests: list[KnownRequest], **columns: list[float]) -> MethodRun:
    """Return a run with some measures on the first requests."""
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    few = requests[: len(values)]
    return MethodRun(few, [MadePlan(Planned(()))] * len(few), values, [1.0] * len(few))


def test_a_row_has_means_groups_tokens_and_paraphrases(asking: Asking, requests: list[KnownRequest]) -> None:
    methods = {name: METHODS[name] for name in ("gold-steps", "whole")}
    runs = {name: run_method(asking, method, requests) for name, method in methods.items()}
    again = {name: run_method(asking, m, paraphrased(requests)) for name, m in methods.items()}
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
