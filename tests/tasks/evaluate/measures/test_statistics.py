from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.evaluate.measures import statistics
from tasks.evaluate.measures.statistics import (
    auroc,
    bootstrap_interval,
    bootstrap_ratio_interval,
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


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    values = [x / 97 for x in range(97)]

    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values) != bootstrap_interval(values, seed=43)


def test_drawing_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_interval(HALF, resamples=50)
    monkeypatch.setattr(statistics, "_BLOCK", 700)

    assert bootstrap_interval(HALF, resamples=50) == whole


@settings(max_examples=25)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_the_interval_is_ordered_and_within_the_values(values: list[float]) -> None:
    low, high = bootstrap_interval(values, resamples=200)

    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_a_lower_level_gives_a_narrower_interval() -> None:
    narrow, wide = bootstrap_interval(HALF, level=0.5), bootstrap_interval(HALF, level=0.99)

    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    low, high = bootstrap_ratio_interval([10.0] * 40, [1000.0] * 20 + [10.0] * 20)

    assert low < 400 / 20_200 < high < 0.05


def test_a_constant_ratio_has_no_width() -> None:
    assert bootstrap_ratio_interval([1.0, 2.0], [4.0, 8.0]) == pytest.approx((0.25, 0.25))


@pytest.mark.parametrize(
    ("level", "resamples", "message"), [(0.0, 10, "0.0"), (1.0, 10, "1.0"), (0.95, 0, "got 0.95 and 0")]
)
def test_parameters_out_of_range_are_named(level: float, resamples: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_interval([1.0], level=level, resamples=resamples)


def test_nothing_cannot_be_resampled() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])


def test_pairs_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="1 and 2"):
        bootstrap_ratio_interval([1.0], [1.0, 2.0])


def test_a_denominator_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        bootstrap_ratio_interval([1.0], [0.0])


def test_each_p_is_multiplied_by_how_many_are_no_smaller() -> None:
    assert holm_bonferroni([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_no_p_exceeds_one() -> None:
    assert holm_bonferroni([0.6, 0.9]) == [1.0, 1.0]


def test_no_values_give_none() -> None:
    assert holm_bonferroni([]) == []


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="p-values lie in"):
        holm_bonferroni([0.5, value])


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


def test_clusters_of_one_query_each_are_the_queries_themselves() -> None:
    a, b = [k / 7 for k in range(8)], [0.4] * 8

    assert paired_bootstrap(a, b, clusters=list("abcdefgh")) == pytest.approx(paired_bootstrap(a, b))


def test_every_query_has_a_cluster() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        paired_bootstrap([1.0, 0.0], [0.0, 0.0], clusters=["a"])
