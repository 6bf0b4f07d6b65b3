from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tasks.crawl.http.limiter import Quota, TokenBucket, midnight_after

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def spend(bucket: TokenBucket, quota: Quota, now: datetime) -> int:
    """Take all that the bucket gives at one time; return how much it was."""
    taken = 0
    while bucket.hold(quota, now) is None:
        bucket.take(quota, now)
        taken += 1
    return taken


@given(waits=st.lists(st.floats(0, 200), max_size=60), limit=st.integers(1, 5))
def test_no_sixty_seconds_hold_more_than_the_minutes_quota(waits: list[float], limit: int) -> None:
    bucket, quota, now, sent = TokenBucket(), Quota(per_minute=limit), NOON, list[datetime]()
    for wait in waits:
        now += timedelta(seconds=wait)
        if bucket.hold(quota, now) is None:
            bucket.take(quota, now)
            sent.append(now)
    for first, beyond in zip(sent, sent[limit:], strict=False):
        assert (beyond - first).total_seconds() >= 60 - 1e-5


@given(waits=st.lists(st.floats(0, 200), max_size=30), limit=st.integers(1, 5))
def test_a_hold_is_just_as_long_as_it_must_be(waits: list[float], limit: int) -> None:
    bucket, quota, now = TokenBucket(), Quota(per_minute=limit), NOON
    for wait in waits:
        now += timedelta(seconds=wait)
        if (hold := bucket.hold(quota, now)) is not None:
            assert 0 < hold.seconds <= 60
            if hold.seconds > 0.01:
                assert bucket.hold(quota, now + timedelta(seconds=hold.seconds - 0.01)) is not None
            now += timedelta(seconds=hold.seconds + 1e-5)
            assert bucket.hold(quota, now) is None
        bucket.take(quota, now)


@given(limit=st.integers(1, 20), hours=st.lists(st.floats(-30, 30), max_size=20))
def test_a_clock_that_goes_back_and_forth_never_doubles_a_day(limit: int, hours: list[float]) -> None:
    bucket, quota = TokenBucket(), Quota(per_day=limit)
    latest, taken = NOON.date(), spend(bucket, quota, NOON)
    for hour in hours:
        now = NOON + timedelta(hours=hour)
        spent = spend(bucket, quota, now)
        if now.date() <= latest:
            assert spent == 0
        latest = max(latest, now.date())
        taken += spent
    assert taken <= limit * ((latest - NOON.date()).days + 1)


def test_a_clock_that_was_a_month_ahead_stops_nobody_for_a_month() -> None:
    bucket, quota = TokenBucket(), Quota(per_day=5, per_minute=9)
    assert spend(bucket, quota, NOON + 30 * DAY) == 5
    assert spend(bucket, quota, NOON) == 0
    hold = bucket.hold(quota, NOON)
    assert hold is not None
    assert (hold.reason, hold.until) == ("quota", midnight_after(NOON))
    bucket.take(quota, NOON)
    assert spend(bucket, quota, NOON + DAY) == 5


def test_a_clock_moved_back_costs_a_minute_at_most() -> None:
    bucket, quota = TokenBucket(), Quota(per_minute=2)
    assert spend(bucket, quota, NOON) == 2
    back = NOON - timedelta(hours=5)
    hold = bucket.hold(quota, back)
    assert hold is not None
    assert (hold.reason, hold.seconds) == ("minute", 60)
    assert spend(bucket, quota, back + timedelta(seconds=61)) == 2


def test_a_new_day_begins_at_midnight_utc() -> None:
    bucket, quota = TokenBucket(), Quota(per_day=2)
    late = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
    assert [spend(bucket, quota, late + timedelta(seconds=s)) for s in (0, 0.9, 1)] == [2, 0, 2]


@given(before=st.integers(0, 10), said=st.integers(-3, 20))
def test_the_servers_word_only_ever_lowers_what_is_left(before: int, said: int) -> None:
    bucket, quota = TokenBucket(), Quota(per_day=10, per_minute=10)
    for _ in range(before):
        bucket.take(quota, NOON)
    bucket.lower(quota, NOON, minute=said, day=max(0, said))
    left = max(0, min(10 - before, said))
    assert bucket.left_today(quota, NOON) == left
    assert spend(bucket, quota, NOON) == left


@given(days=st.dictionaries(st.dates().map(str), st.integers(0, 99)), minute=st.lists(st.floats(0, 4e9)))
def test_a_bucket_is_read_as_it_was_written(days: dict[str, int], minute: list[float]) -> None:
    bucket = TokenBucket(days, sorted(minute))
    assert TokenBucket.of(asdict(bucket)) == bucket
