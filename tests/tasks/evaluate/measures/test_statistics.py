from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.evaluate.measures import statistics as module
from tasks.evaluate.measures.runs import grouped, latency, long_table, paired_tests, summarise, write_run
from tasks.evaluate.measures.statistics import (
    ClusteredScores,
    auroc,
    bootstrap_interval,
    bootstrap_ratio_interval,
    calibration,
    calibration_by_count,
    calibration_error,
    holm_bonferroni,
    paired_bootstrap,
    separation,
    wilcoxon,
)
from tasks.evaluate.measures.tables import Table, cell, columns, markdown, means, with_intervals

HALF = [0.0, 1.0] * 50


def test_the_interval_of_a_share_is_near_its_normal_approximation() -> None:
    low, high = bootstrap_interval(HALF)
    width = 1.96 * math.sqrt(0.25 / 100)
    assert low == pytest.approx(0.5 - width, abs=0.011)
    assert high == pytest.approx(0.5 + width, abs=0.011)


def test_the_interval_is_the_percentiles_of_the_means_of_the_seeded_draws() -> None:
    values = [0.1, 0.73, 0.2, 0.9, 0.37, 0.61, 0.05]
    drawn = np.random.default_rng(42).integers(0, 7, size=(10_000, 7))
    expected = np.quantile(np.array(values)[drawn].mean(axis=1), [0.025, 0.975])
    assert bootstrap_interval(values) == pytest.approx(tuple(expected))


def test_a_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    low, high = bootstrap_ratio_interval([10.0] * 40, [1000.0] * 20 + [10.0] * 20)
    assert low < 400 / 20_200 < high < 0.05


@pytest.mark.parametrize(
    ("resampled", "said"),
    [
        (lambda: bootstrap_interval([]), "no values"),
        (lambda: bootstrap_ratio_interval([1.0], [1.0, 2.0]), "got 1 and 2"),
        (lambda: paired_bootstrap([1.0, 0.0], [0.0, 0.0], clusters=["a"]), "got 2 and 1"),
    ],
    ids=["nothing", "sides of different length", "a query without a cluster"],
)
def test_what_cannot_be_resampled_is_refused(resampled: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resampled()


def test_each_p_is_multiplied_by_how_many_are_no_smaller_and_stays_within_one() -> None:
    assert holm_bonferroni([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_bonferroni([0.9, 0.6]) == [1.0, 1.0]


def test_ranks_of_differences_are_summed_by_sign() -> None:
    # Differences 1, -2, 3, 4 and 0: ranks 1, 2, 3, 4 and none, of which 2 is negative.
    w, differing, p = wilcoxon([1, 0, 3, 4, 5], [0, 2, 0, 0, 5])
    assert (w, differing) == (2, 4)
    assert p == pytest.approx(6 / 16)  # 3 of 16 signs give W of 2 or less
    assert wilcoxon([0.1 + 0.2, 1], [0.3, 1]) == (0, 0, 1)  # pairs without a difference tell nothing


def test_the_auroc_counts_pairs_and_half_of_equals() -> None:
    assert auroc([0.9, 0.5], [0.5, 0.1]) == pytest.approx(3.5 / 4)
    assert auroc([1], []) is None


def test_whole_clusters_are_drawn_where_queries_are_alike() -> None:
    a, b = [1.0] * 50 + [0.0] * 10, [0.0] * 60
    own = paired_bootstrap(a, b)
    clustered = paired_bootstrap(a, b, clusters=["one"] * 50 + ["two"] * 10)
    assert own[0] == clustered[0] == pytest.approx(5 / 6)
    # Each of two clusters is drawn alone in a quarter of the resamples.
    assert clustered[1:3] == (0.0, 1.0)
    assert own[1] > 0.7
    assert clustered[3] > own[3]


def test_a_few_clusters_cannot_tell_more_than_there_are_draws_of_them() -> None:
    better, worse = [1.0] * 8, [0.0] * 8
    assert paired_bootstrap(better, worse, clusters=list("aabbccdd"))[3] == 2 / 4**4
    assert paired_bootstrap(better, worse, clusters=list("aaaaaaaa"))[3] == 1.0
    assert paired_bootstrap(better, worse, clusters=list("abcdefgh"))[3] == 1e-4


def test_the_calibration_error_is_the_mean_gap_weighed_by_answers() -> None:
    bins = calibration([0.95, 0.91, 0.55, 0.5, 1.0], [True, True, False, True, False])
    assert [(row["from"], row["n"]) for row in bins] == [(0.5, 2), (0.9, 3)]
    assert [row["accuracy"] for row in bins] == [0.5, pytest.approx(2 / 3)]
    gap = 2 * abs(0.5 - 0.525) + 3 * abs(2 / 3 - 2.86 / 3)
    assert calibration_error(bins) == pytest.approx(gap / 5)
    assert calibration_error([]) == 0


def test_bins_of_equal_count_hold_the_answers_in_the_order_of_confidence() -> None:
    confidences = [k / 40 for k in range(20)]
    bins = calibration_by_count(confidences[::-1], [k >= 10 for k in range(20)][::-1])
    assert [row["n"] for row in bins] == [2] * 10
    assert [row["accuracy"] for row in bins] == [0.0] * 5 + [1.0] * 5
    assert [row["from"] for row in bins] == confidences[::2]
    assert bins[-1]["confidence"] == pytest.approx((18 / 40 + 19 / 40) / 2)
    assert [row["n"] for row in calibration_by_count([0.5] * 23, [True] * 23)] == [3] * 3 + [2] * 7
    assert [row["n"] for row in calibration_by_count([0.5, 0.1], [True, False])] == [1, 1]


def scored(*scores: float, clusters: str = "") -> ClusteredScores:
    return ClusteredScores(scores, clusters or "abcdefghijklmnopqrstuvwxyz"[: len(scores)])


def test_the_threshold_is_the_highest_that_routes_the_share_asked_for() -> None:
    served, unserved = scored(1.0, 2.0, 3.0, 4.0), scored(0.5, 1.5, 2.5, 3.5)
    found = [separation(served, unserved, recall) for recall in (0.25, 0.5, 0.51, 0.75, 1.0)]
    assert [one and one["threshold"] for one in found] == [4.0, 3.0, 2.0, 2.0, 1.0]
    assert [one and one["false_route_rate"] for one in found] == [0.0, 0.25, 0.5, 0.5, 0.75]
    # 0.07 times 100 is a little more than 7 in floats, and asks for no query more.
    exact = separation(scored(*range(100), clusters="a" * 100), scored(-1.0), 0.07)
    assert exact is not None
    assert exact["threshold"] == 93.0
    # Without queries of either side there is nothing to tell apart.
    assert separation(scored(1.0), scored()) is separation(scored(), scored(1.0)) is None


def test_intervals_draw_whole_clusters_with_both_their_sides() -> None:
    served = ClusteredScores([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"])
    unserved = ClusteredScores([0.5, 0.5], ["a", "b"])
    found = separation(served, unserved)
    assert found is not None
    # Of a alone each pair is right, of b alone none: either is drawn in one resample of four.
    assert found["ci95"]["auroc"] == [0.0, 1.0]
    # A resample without one side does not count.
    found = separation(ClusteredScores([1.0], ["a"]), ClusteredScores([0.0], ["b"]))
    assert found is not None
    assert found["ci95"]["auroc"] == [1.0, 1.0]


def test_each_draw_of_clusters_is_separated_for_itself_with_a_threshold_of_its_own() -> None:
    served = ClusteredScores([3.0, 1.0, 1.0, 2.0], ["a", "a", "b", "c"])
    unserved = ClusteredScores([1.0, 2.0, 0.5], ["b", "c", "c"])

    @cache
    def separated(times: tuple[int, ...]) -> tuple[float, float] | None:
        of = dict(zip("abc", times, strict=True))
        high, low = (
            [score for score, own in zip(side.scores, side.clusters, strict=True) for _ in range(of[own])]
            for side in (served, unserved)
        )
        reached = [score for score in high if np.mean(np.array(high) >= score) >= 0.5]
        area = auroc(high, low)
        return None if area is None else (area, float(np.mean(np.array(low) >= max(reached))))

    drawn = np.random.default_rng(42).multinomial(3, [1 / 3] * 3, size=10_000).tolist()
    areas, rates = zip(*filter(None, (separated(tuple(times)) for times in drawn)), strict=True)
    found = separation(served, unserved, 0.5)
    assert found is not None
    for name, values in (("auroc", areas), ("false_route_rate", rates)):
        assert found["ci95"][name] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist())


def test_weighing_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    served, unserved = scored(0.1, 0.4, 0.3, 0.9), scored(0.2, 0.35, 0.1)
    whole = separation(served, unserved)
    monkeypatch.setattr(module, "_DRAWN_AT_ONCE", 2500)
    assert separation(served, unserved) == whole


def test_a_run_is_a_row_for_each_query_and_measure_with_keys_before_the_value(tmp_path: Path) -> None:
    rows = pl.DataFrame({
        "method": ["a", "a"], "query_id": ["q1", "q2"], "budget": [None, 0.5], "hit": [1, 0],
        "chunks": [None, 3],
    })  # fmt: skip
    asked = pl.DataFrame({"pool": ["own"], "method": ["a"], "query_id": ["n1"], "score": [0.25]})
    write_run(
        tmp_path / "run.parquet",
        [long_table("mill", rows, ["hit", "chunks"]), long_table("mill", asked, ["score"])],
    )
    written = pl.read_parquet(tmp_path / "run.parquet")
    assert written.columns == ["bench", "pool", "method", "query", "budget", "measure", "value"]
    assert written.rows() == [
        ("mill", "all", "a", "q1", None, "hit", 1.0),
        ("mill", "all", "a", "q2", 0.5, "hit", 0.0),
        ("mill", "all", "a", "q2", 0.5, "chunks", 3.0),
        ("mill", "own", "a", "n1", None, "score", 0.25),
    ]


def test_a_summary_has_means_and_intervals_over_queries_or_over_clusters() -> None:
    values = {"hit": [1.0, 1.0, 0.0, 0.0] * 5, "share": [0.5] * 20}
    alone, together = summarise(values), summarise(values, list("aabb") * 5)
    assert (alone["hit"], alone["share"], alone["ci95"]["share"]) == (0.5, 0.5, [0.5, 0.5])
    low, high = alone["ci95"]["hit"]
    assert 0 < low < 0.5 < high < 1
    assert together["ci95"]["hit"] == [0.0, 1.0]  # both clusters, or one of them twice


def test_groups_come_in_their_order_and_nameless_items_belong_to_none() -> None:
    assert grouped(["bee", "ant", "", "bat"], lambda word: word[:1]) == {"b": ["bee", "bat"], "a": ["ant"]}
    assert latency([1.0, 2.0, 3.0]) == {"median_ms": 2.0, "p95_ms": pytest.approx(2.9)}


def test_tests_made_together_are_adjusted_together() -> None:
    better, worse = [1.0] * 12, [0.0] * 6 + [1.0] * 6
    [alone] = paired_tests([(better, worse)])
    first, second = paired_tests([(better, worse), (worse, worse)])
    assert (alone.difference, alone.p_adjusted) == (0.5, alone.p)
    assert alone.low < 0.5 < alone.high
    assert first.p_adjusted == pytest.approx(2 * first.p)
    assert (second.difference, second.p, second.p_adjusted) == (0.0, 1.0, 1.0)
    assert paired_tests([]) == []


ROW: dict[str, Any] = {
    "method": "mmr", "hit@1": 0.5, "none": None, "budget": 0.0, "marked": 2, "loss": -0.25, "whole": 1.0,
    "ci95": {"hit@1": [0.25, 0.75]}, "paper": {"nodes": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{method}", "mmr"),
        ("{hit@1:.3f}", "0.500"),
        ("{hit@1:.2p}", "50.00"),
        ("{hit@1:.1%}", "50.0%"),
        ("{hit@1:.3z}", ".500"),
        ("{whole:.3z}", "1"),
        ("{loss:+.2z}", "-.25"),
        ("{hit@1:+.2z}", "+.50"),
        ("{paper[nodes]:.1f}", "4.0"),
        ("[{ci95[hit@1][0]:.2f}, {ci95[hit@1][1]:.2f}]", "[0.25, 0.75]"),
        ("{method}{marked:? †}", "mmr †"),
        ("{method}{budget:? †}", "mmr"),
        ("{none:g|own limit}", "own limit"),
        ("{method}{none:g|}", "mmr"),
        ("{none:.3f}", ""),
        ("{method} {absent}", ""),
        ("{none[deep]:.2f}", ""),
    ],
)
def test_a_cell_is_a_format_of_a_rows_fields_and_empty_where_one_is_missing(form: str, said: str) -> None:
    assert cell(form, ROW) == said


def test_blocks_are_paragraphs_headings_and_tables_in_markdown() -> None:
    table = Table(
        "Methods", columns({"Method": "{method}"}, means(["hit@1"]), with_intervals({"hit@1": "Hit"})), [ROW]
    )
    assert markdown(["# Run", "Said first.", table, Table("", columns("method"), [])]) == (
        "# Run\n\nSaid first.\n\n## Methods\n\n"
        "| Method | hit@1 | Hit |\n| --- | --- | --- |\n| mmr | 0.500 | 0.500 [0.25, 0.75] |\n\n"
        "| method |\n| --- |\n"
    )
