from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.evaluate.measures import separation as module
from tasks.evaluate.measures.separation import ClusteredScores, separation
from tasks.evaluate.measures.statistics import (
    auroc,
    bootstrap_interval,
    bootstrap_ratio_interval,
    calibration,
    calibration_by_count,
    calibration_error,
    holm_bonferroni,
    paired_bootstrap,
    wilcoxon,
)

HALF = [0.0, 1.0] * 50
P = st.floats(min_value=0, max_value=1)


def test_the_interval_of_a_share_is_near_its_normal_approximation() -> None:
    low, high = bootstrap_interval(HALF)
    width = 1.96 * math.sqrt(0.25 / 100)
    assert low == pytest.approx(0.5 - width, abs=0.011)
    assert high == pytest.approx(0.5 + width, abs=0.011)


def test_the_interval_is_the_percentiles_of_the_means_of_the_seeded_draws() -> None:
    values = [0.1, 0.7, 0.2, 0.9]
    drawn = np.random.default_rng(7).integers(0, 4, size=(500, 4))
    expected = np.quantile(np.array(values)[drawn].mean(axis=1), [0.05, 0.95])
    assert bootstrap_interval(values, level=0.9, resamples=500, seed=7) == pytest.approx(tuple(expected))


@settings(max_examples=25)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_the_interval_is_ordered_and_within_the_values(values: list[float]) -> None:
    low, high = bootstrap_interval(values, resamples=200)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_a_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    low, high = bootstrap_ratio_interval([10.0] * 40, [1000.0] * 20 + [10.0] * 20)
    assert low < 400 / 20_200 < high < 0.05


def test_nothing_cannot_be_resampled() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])


def test_pairs_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="1 and 2"):
        bootstrap_ratio_interval([1.0], [1.0, 2.0])


def test_each_p_is_multiplied_by_how_many_are_no_smaller() -> None:
    assert holm_bonferroni([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(P, min_size=1, max_size=12))
def test_order_is_kept_and_adjusting_never_lowers(values: list[float]) -> None:
    adjusted = holm_bonferroni(values)
    assert all(
        p <= a <= min(1.0, p * len(values)) or a == pytest.approx(p)
        for p, a in zip(values, adjusted, strict=True)
    ) or max(adjusted) >= max(values)
    pairs = sorted(zip(values, adjusted, strict=True))
    assert [a for _, a in pairs] == sorted(adjusted)
    assert adjusted[values.index(min(values))] == min(1.0, min(values) * len(values))


def test_ranks_of_differences_are_summed_by_sign() -> None:
    # Differences 1, -2, 3, 4 and 0: ranks 1, 2, 3, 4 and none, of which 2 is negative.
    w, differing, p = wilcoxon([1, 0, 3, 4, 5], [0, 2, 0, 0, 5])
    assert (w, differing) == (2, 4)
    assert p == pytest.approx(6 / 16)  # 3 of 16 signs give W of 2 or less


def test_pairs_without_a_difference_tell_nothing() -> None:
    assert wilcoxon([0.1 + 0.2, 1], [0.3, 1]) == (0, 0, 1)


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


def test_every_query_has_a_cluster() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        paired_bootstrap([1.0, 0.0], [0.0, 0.0], clusters=["a"])


PAIRS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1)


def test_the_calibration_error_is_the_mean_gap_weighed_by_answers() -> None:
    bins = calibration([0.95, 0.91, 0.55, 0.5, 1.0], [True, True, False, True, False])
    assert [(row["from"], row["n"]) for row in bins] == [(0.5, 2), (0.9, 3)]
    assert [row["accuracy"] for row in bins] == [0.5, pytest.approx(2 / 3)]
    gap = 2 * abs(0.5 - 0.525) + 3 * abs(2 / 3 - 2.86 / 3)
    assert calibration_error(bins) == pytest.approx(gap / 5)
    assert calibration_error([]) == 0


@given(PAIRS)
def test_every_answer_is_in_one_bin_and_the_error_is_no_larger_than_one(
    pairs: list[tuple[float, bool]],
) -> None:
    bins = calibration([c for c, _ in pairs], [r for _, r in pairs])
    assert sum(row["n"] for row in bins) == len(pairs)
    assert 0 <= calibration_error(bins) <= 1


def test_bins_of_equal_count_hold_the_answers_in_the_order_of_confidence() -> None:
    confidences = [k / 40 for k in range(20)]
    bins = calibration_by_count(confidences[::-1], [k >= 10 for k in range(20)][::-1])
    assert [row["n"] for row in bins] == [2] * 10
    assert [row["accuracy"] for row in bins] == [0.0] * 5 + [1.0] * 5
    assert [row["from"] for row in bins] == confidences[::2]
    assert bins[-1]["confidence"] == pytest.approx((18 / 40 + 19 / 40) / 2)


@given(PAIRS)
def test_no_bin_of_equal_count_holds_two_answers_more_than_another(pairs: list[tuple[float, bool]]) -> None:
    bins = calibration_by_count([c for c, _ in pairs], [r for _, r in pairs])
    counts = [row["n"] for row in bins]
    assert sum(counts) == len(pairs)
    assert len(bins) == min(10, len(pairs))
    assert max(counts) - min(counts) <= 1
    assert [row["from"] for row in bins] == sorted(row["from"] for row in bins)
    assert 0 <= calibration_error(bins) <= 1


SCORES = st.lists(st.tuples(st.floats(-5, 5), st.sampled_from("abc")), min_size=1, max_size=12)


def scored(*scores: float, clusters: str = "") -> ClusteredScores:
    return ClusteredScores(scores, clusters or "abcdefghijklmnopqrstuvwxyz"[: len(scores)])


def test_the_threshold_is_the_highest_that_routes_the_share_asked_for() -> None:
    served, unserved = scored(1.0, 2.0, 3.0, 4.0), scored(0.5, 1.5, 2.5, 3.5)
    found = [separation(served, unserved, recall) for recall in (0.25, 0.5, 0.51, 0.75, 1.0)]
    assert [one and one["threshold"] for one in found] == [4.0, 3.0, 2.0, 2.0, 1.0]
    assert [one and one["false_route_rate"] for one in found] == [0.0, 0.25, 0.5, 0.5, 0.75]


def test_a_share_that_floats_do_not_hold_exactly_asks_for_no_query_more() -> None:
    # 0.07 times 100 is a little more than 7 in floats.
    found = separation(scored(*range(100), clusters="a" * 100), scored(-1.0), 0.07)
    assert found is not None
    assert found["threshold"] == 93.0


def test_without_queries_of_either_side_there_is_nothing_to_tell_apart() -> None:
    assert separation(scored(1.0), scored()) is None
    assert separation(scored(), scored(1.0)) is None


def test_intervals_draw_whole_clusters_with_both_their_sides() -> None:
    served = ClusteredScores([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"])
    unserved = ClusteredScores([0.5, 0.5], ["a", "b"])
    found = separation(served, unserved)
    assert found is not None
    # Of a alone each pair is right, of b alone none: either is drawn in one resample of four.
    assert found["ci95"]["auroc"] == [0.0, 1.0]


def test_a_resample_without_one_side_does_not_count() -> None:
    found = separation(ClusteredScores([1.0], ["a"]), ClusteredScores([0.0], ["b"]))
    assert found is not None
    assert found["ci95"]["auroc"] == [1.0, 1.0]


def test_weighing_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    served, unserved = scored(0.1, 0.4, 0.3, 0.9), scored(0.2, 0.35, 0.1)
    whole = separation(served, unserved)
    monkeypatch.setattr(module, "_BLOCK", 2500)
    assert separation(served, unserved) == whole


def test_resampled_areas_and_rates_are_those_of_the_queries_drawn() -> None:
    random = np.random.default_rng(1)
    high, low = random.normal(1, 1, 30).round(1), random.normal(0, 1, 20).round(1)
    of_high, of_low = random.integers(0, 4, 30), random.integers(0, 4, 20)
    times = np.array([2, 0, 1, 1])
    drawn = np.repeat(high, times[of_high]), np.repeat(low, times[of_low])
    wins = module._wins(high, low, of_high, of_low, 4)
    pairs = (times @ np.bincount(of_high, minlength=4)) * (times @ np.bincount(of_low, minlength=4))
    (threshold,), (rate,) = module._routed(high, low, times[of_high][None], times[of_low][None], 0.9)
    assert times @ wins @ times / pairs == pytest.approx(auroc(drawn[0].tolist(), drawn[1].tolist()))
    assert np.mean(drawn[0] >= threshold) >= 0.9 > np.mean(drawn[0] > threshold)
    assert rate == pytest.approx(np.mean(drawn[1] >= threshold))


@settings(max_examples=20)
@given(SCORES, SCORES, st.floats(0.05, 1))
def test_at_least_the_share_is_routed_and_no_higher_score_would_do(
    served: list[tuple[float, str]], unserved: list[tuple[float, str]], recall: float
) -> None:
    found = separation(
        ClusteredScores([s for s, _ in served], [c for _, c in served]),
        ClusteredScores([s for s, _ in unserved], [c for _, c in unserved]),
        recall,
    )
    assert found is not None
    routed = [s >= found["threshold"] for s, _ in served]
    higher = [s > found["threshold"] for s, _ in served]
    assert np.mean(routed) >= recall - 1e-9
    assert np.mean(higher) < recall
    for low, high in found["ci95"].values():
        assert 0 <= low <= high <= 1
