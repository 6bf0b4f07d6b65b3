from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluate.measures.statistics import holm_bonferroni

P = st.floats(min_value=0, max_value=1)


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
