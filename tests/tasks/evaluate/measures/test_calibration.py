from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluate.measures.statistics import calibration, calibration_by_count, calibration_error

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


def test_one_confidence_for_all_is_off_by_its_distance_from_the_share_that_is_right() -> None:
    # Right and wrong alternate, so that each bin has as many of both.
    assert calibration_error(calibration_by_count([0.9] * 40, [True, False] * 20)) == pytest.approx(0.4)


@given(PAIRS)
def test_no_bin_of_equal_count_holds_two_answers_more_than_another(pairs: list[tuple[float, bool]]) -> None:
    bins = calibration_by_count([c for c, _ in pairs], [r for _, r in pairs])
    counts = [row["n"] for row in bins]
    assert sum(counts) == len(pairs)
    assert len(bins) == min(10, len(pairs))
    assert max(counts) - min(counts) <= 1
    assert [row["from"] for row in bins] == sorted(row["from"] for row in bins)
    assert 0 <= calibration_error(bins) <= 1
