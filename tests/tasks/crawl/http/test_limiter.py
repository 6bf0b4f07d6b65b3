"""The limiter: buckets of a minute and a day, pauses and quotas kept over restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from storage.errors import StorageError
from storage.root import Root
from tasks.crawl.http.limiter import Hold, Limiter, Quota, TokenBucket, midnight_after
from tasks.crawl.http.responses import RateLimits, read_limits

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
FILE = "state/quotas.json"


def held(found: Hold | None) -> Hold:
    assert found is not None
    return found


def spend(bucket: TokenBucket, quota: Quota, now: datetime) -> int:
    """Take all that the bucket gives at one time; return how much it was."""
    taken = 0
    while bucket.hold(quota, now) is None:
        bucket.take(quota, now)
        taken += 1
    return taken


@given(waits=st.lists(st.floats(0, 200), max_size=30), limit=st.integers(1, 5))
def test_a_hold_is_just_as_long_as_it_must_be_so_that_no_sixty_seconds_hold_more(
    waits: list[float], limit: int
) -> None:
    bucket, quota, now, sent = TokenBucket(), Quota(per_minute=limit), NOON, list[datetime]()
    for wait in waits:
        now += timedelta(seconds=wait)
        if (hold := bucket.hold(quota, now)) is not None:
            assert 0 < hold.seconds <= 60
            if hold.seconds > 0.01:
                assert bucket.hold(quota, now + timedelta(seconds=hold.seconds - 0.01)) is not None
            now += timedelta(seconds=hold.seconds + 1e-5)
            assert bucket.hold(quota, now) is None
        bucket.take(quota, now)
        sent.append(now)
    for first, beyond in zip(sent, sent[limit:], strict=False):
        assert (beyond - first).total_seconds() >= 60 - 1e-4


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


def test_a_clock_that_was_a_month_ahead_stops_nobody_for_a_month_and_a_day_ends_at_midnight_utc() -> None:
    bucket, quota = TokenBucket(), Quota(per_day=5, per_minute=9)
    assert spend(bucket, quota, NOON + 30 * DAY) == 5
    assert spend(bucket, quota, NOON) == 0
    hold = held(bucket.hold(quota, NOON))
    assert (hold.reason, hold.until) == ("quota", midnight_after(NOON))
    bucket.take(quota, NOON)
    late = NOON.replace(hour=23, minute=59, second=59)
    assert [spend(bucket, quota, late + timedelta(seconds=s)) for s in (0, 0.9, 1)] == [0, 0, 5]


def test_a_clock_moved_back_costs_a_minute_at_most() -> None:
    bucket, quota = TokenBucket(), Quota(per_minute=2)
    assert spend(bucket, quota, NOON) == 2
    back = NOON - timedelta(hours=5)
    hold = held(bucket.hold(quota, back))
    assert (hold.reason, hold.seconds) == ("minute", 60)
    assert spend(bucket, quota, back + timedelta(seconds=61)) == 2


@given(before=st.integers(0, 10), said=st.integers(-3, 20))
def test_the_servers_word_only_ever_lowers_what_is_left(before: int, said: int) -> None:
    bucket, quota = TokenBucket(), Quota(per_day=10, per_minute=10)
    for _ in range(before):
        bucket.take(quota, NOON)
    bucket.lower(quota, NOON, minute=said, day=max(0, said))
    left = max(0, min(10 - before, said))
    assert bucket.left_today(quota, NOON) == left
    assert spend(bucket, quota, NOON) == left


QUOTAS = {"quotas": {"hive.example": Quota(per_day=3)}, "token_quotas": {"hive.example": Quota(per_day=9)}}
LIMITS = Limiter(Root("unused"), **QUOTAS)  # type: ignore[arg-type]
NOBODY = LIMITS.client(URL("https://hive.example"), None)
SOMEBODY = LIMITS.client(URL("https://hive.example"), "abc123")
ELSEWHERE = LIMITS.client(URL("https://moor.example"), None)


def test_books_of_one_root_agree_at_any_moment(root: Root) -> None:
    one, two = Limiter(root, delay=0), Limiter(root, delay=0)
    admitted = [book.admit(NOBODY, NOON) is None for book in (one, two, one, two, one)]
    assert admitted == [True, True, True, False, False]
    assert two.admit(SOMEBODY, NOON) is None


def test_a_pause_of_a_host_is_everybodys_and_one_of_a_client_its_own(root: Root) -> None:
    book = Limiter(root, delay=0)
    book.pause(SOMEBODY.key, NOON + HOUR, NOON, "quota")
    pause = held(Limiter(root, delay=0).admit(SOMEBODY, NOON))
    assert (pause.reason, pause.until, pause.seconds) == ("quota", NOON + HOUR, 3600)
    assert book.admit(NOBODY, NOON) is None
    for length in (2, 1):  # a shorter one ends no longer one
        book.pause("hive.example", NOON + length * HOUR, NOON, "rate-limited")
    for client in (NOBODY, SOMEBODY):
        pause = held(Limiter(root, delay=0).admit(client, NOON))
        assert (pause.reason, pause.until) == ("rate-limited", NOON + 2 * HOUR)
    assert book.admit(ELSEWHERE, NOON) is None
    assert book.admit(NOBODY, NOON + 2 * HOUR) is None


def test_a_clock_moved_back_delays_a_request_once_and_leaves_a_pause_as_long_as_it_was(root: Root) -> None:
    book = Limiter(root, delay=2)
    month = timedelta(days=30)
    book.pause("hive.example", NOON + month + HOUR, NOON + month, "rate-limited")
    assert held(book.admit(NOBODY, NOON)).seconds == 3600
    assert Limiter(root, delay=0).admit(NOBODY, NOON + HOUR) is None
    book.admit(ELSEWHERE, NOON)
    book.sent(ELSEWHERE.host, NOON)
    hold = held(book.admit(ELSEWHERE, NOON - HOUR))
    assert (hold.reason, hold.seconds) == ("spacing", 2)
    assert book.admit(ELSEWHERE, NOON - HOUR + timedelta(seconds=2)) is None
    book.sent(ELSEWHERE.host, NOON - HOUR + timedelta(seconds=3))  # it really left a second later
    hold = held(book.admit(ELSEWHERE, NOON - HOUR + timedelta(seconds=4)))
    assert hold.seconds == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "content",
    [
        b"no json", b"[]", b'{"buckets": [1]}', b'{"sent": {"h": "x"}}', b'{"pauses": {"h": {}}}',
        b'{"buckets": {"hive.example anonymous": {"days": {"2026-03-01": null}, "minute": []}}}',
    ],
)  # fmt: skip
def test_a_damaged_book_is_named(root: Root, content: bytes) -> None:
    root.write(FILE, content)
    with pytest.raises(StorageError, match=r"quotas\.json"):
        Limiter(root, delay=0).admit(NOBODY, NOON)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, {}), ({"x-ratelimit-remaining": "57"}, {"left": 57}),
        ({"x-ratelimit-reset": str(int(NOON.timestamp()) + 90)}, {"reset": NOON + timedelta(seconds=90)}),
        ({"x-ratelimit-reset": "90"}, {"reset": NOON + timedelta(seconds=90)}),
        ({"ratelimit-remaining": "0"}, {"left": 0}),
        ({"ratelimit-reset": "34"}, {"reset": NOON + timedelta(seconds=34)}),
        ({"x-ratelimit-reset": "1"}, {"reset": NOON + timedelta(seconds=1)}),
        ({"x-ratelimit-reset": "1000000000"}, {"reset": NOON}),
        ({"x-ratelimit-reset": "9" * 40}, {"reset": NOON + timedelta(days=1)}),
        ({"x-ratelimit-daily-remaining": " 4 "}, {"left_today": 4}),
        ({"x-ratelimit-minute-remaining": "0"}, {"left_this_minute": 0}),
        ({"x-ratelimit-minute-remaining": "-1", "x-ratelimit-remaining": "many"}, {}),
        ({"x-ratelimit-remaining": "\u0663"}, {}), ({"retry-after": "120"}, {"retry_after": 120.0}),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, {"retry_after": 30.0}),
        ({"retry-after": "Sun, 01 Mar 2026 13:00:30 +0100"}, {"retry_after": 30.0}),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, {"retry_after": 0.0}),
        ({"retry-after": "Sun, 01 Mar 2099 11:00:00 GMT"}, {"retry_after": 86400.0}),
        ({"retry-after": "tomorrow"}, {}),
    ],
)  # fmt: skip
def test_headers_are_read_and_nonsense_is_silence(headers: dict[str, str], said: dict[str, Any]) -> None:
    assert read_limits(headers, NOON) == RateLimits(**said)
