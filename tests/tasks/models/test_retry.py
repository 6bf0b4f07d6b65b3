from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.models.retry import RetryPolicy, retry_after

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
    ],
)
def test_the_servers_word_on_waiting(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOON) == seconds


@given(st.integers(1, 60), st.floats(0, 0.999))
def test_a_wait_of_our_own_lies_between_the_least_and_the_longest(tried: int, draw: float) -> None:
    assert 0.5 <= RetryPolicy(wait_min=0.5, wait_max=20).backoff(tried, draw) <= 20


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"wait_min": -1}, {"server_wait_max": -1}])
def test_a_policy_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(WrongInput):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
