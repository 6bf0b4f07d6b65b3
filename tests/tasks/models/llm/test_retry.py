from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.models.llm.errors import LlmDenied, LlmUnavailable
from tasks.models.llm.retry import LlmRetryPolicy, retry_after

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


@given(st.integers(1, 60), st.floats(0, 0.999), st.none() | st.floats(0, 100))
def test_a_wait_is_at_least_what_was_asked_and_of_our_own_at_most_the_longest(
    tries: int, random: float, asked: float | None
) -> None:
    wait = LlmRetryPolicy(wait_min=0.5, wait_max=20).wait(tries, asked, random)
    assert 0.5 <= wait <= max(20, asked or 0)
    assert wait >= (asked or 0)


def test_only_what_may_pass_is_tried_again() -> None:
    policy = LlmRetryPolicy(server_wait_max=10)
    assert policy.again(LlmUnavailable("server", "oops"))
    assert policy.again(LlmUnavailable("rate-limited", "later", retry_after=10))
    assert not policy.again(LlmUnavailable("rate-limited", "tomorrow", retry_after=11))
    assert not policy.again(LlmDenied("no"))
    assert not policy.again(ValueError())


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"wait_min": -1}, {"server_wait_max": -1}])
def test_a_policy_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(WrongInput):
        LlmRetryPolicy(**wrong)  # type: ignore[arg-type]
