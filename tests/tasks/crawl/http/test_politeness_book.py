from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from storage.errors import StorageError
from storage.root import Root
from tasks.crawl.http.limiter import Limiter, Quota
from tasks.crawl.http.responses import RateLimits, read_limits

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FILE = "state/quotas.json"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


QUOTAS = {"quotas": {"hive.example": Quota(per_day=3)}, "token_quotas": {"hive.example": Quota(per_day=9)}}
LIMITS = Limiter(Root("unused"), **QUOTAS)  # type: ignore[arg-type]
NOBODY = LIMITS.client(URL("https://hive.example"), None)
SOMEBODY = LIMITS.client(URL("https://hive.example"), "abc123")
ELSEWHERE = LIMITS.client(URL("https://moor.example"), None)


def test_clients_have_the_quota_of_their_host_and_kind() -> None:
    assert [c.quota.per_day for c in (NOBODY, SOMEBODY, ELSEWHERE)] == [3, 9, None]


def test_books_of_one_root_agree_at_any_moment(root: Root) -> None:
    one, two = Limiter(root, delay=0), Limiter(root, delay=0)
    admitted = [book.admit(NOBODY, NOON) is None for book in (one, two, one, two, one)]
    assert admitted == [True, True, True, False, False]
    assert two.admit(SOMEBODY, NOON) is None


def test_nothing_is_written_where_there_is_nothing_to_remember(root: Root) -> None:
    book = Limiter(root, delay=0)
    assert book.admit(ELSEWHERE, NOON) is None
    book.heed(ELSEWHERE, RateLimits(left=7), NOON)
    assert not root.exists(FILE)


def test_a_pause_of_a_host_is_everybodys_and_one_of_a_client_its_own(root: Root) -> None:
    book = Limiter(root, delay=0)
    book.pause(SOMEBODY.key, NOON + HOUR, NOON, "quota")
    held = Limiter(root, delay=0).admit(SOMEBODY, NOON)
    assert held is not None
    assert (held.reason, held.until, held.seconds) == ("quota", NOON + HOUR, 3600)
    assert book.admit(NOBODY, NOON) is None
    book.pause("hive.example", NOON + 2 * HOUR, NOON, "rate-limited")
    for client in (NOBODY, SOMEBODY):
        held = Limiter(root, delay=0).admit(client, NOON)
        assert held is not None
        assert (held.reason, held.until) == ("rate-limited", NOON + 2 * HOUR)
    assert book.admit(ELSEWHERE, NOON) is None
    assert book.admit(NOBODY, NOON + 2 * HOUR) is None


def test_a_shorter_pause_ends_no_longer_one(root: Root) -> None:
    book = Limiter(root, delay=0)
    for length in (2, 1):
        book.pause("hive.example", NOON + length * HOUR, NOON, "rate-limited")
    assert book.admit(NOBODY, NOON + 1.5 * HOUR) is not None


def test_a_pause_is_as_long_as_it_was_when_the_clock_is_moved_back(root: Root) -> None:
    book = Limiter(root, delay=0)
    month = timedelta(days=30)
    book.pause("hive.example", NOON + month + HOUR, NOON + month, "rate-limited")
    held = book.admit(NOBODY, NOON)
    assert held is not None
    assert held.seconds == 3600
    assert Limiter(root, delay=0).admit(NOBODY, NOON + HOUR) is None


def test_a_clock_moved_back_delays_a_request_once(root: Root) -> None:
    book = Limiter(root, delay=2)
    book.admit(ELSEWHERE, NOON)
    book.sent(ELSEWHERE.host, NOON)
    held = book.admit(ELSEWHERE, NOON - HOUR)
    assert held is not None
    assert (held.reason, held.seconds) == ("spacing", 2)
    assert book.admit(ELSEWHERE, NOON - HOUR + timedelta(seconds=2)) is None


def test_distance_is_kept_from_when_a_request_really_left(root: Root) -> None:
    book = Limiter(root, delay=2)
    book.admit(ELSEWHERE, NOON)
    book.sent(ELSEWHERE.host, NOON + timedelta(seconds=1))
    held = book.admit(ELSEWHERE, NOON + timedelta(seconds=2))
    assert held is not None
    assert held.seconds == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "content",
    [
        b"no json",
        b"[]",
        b'{"buckets": [1]}',
        b'{"sent": {"h": "x"}}',
        b'{"pauses": {"h": {}}}',
        b'{"buckets": {"hive.example anonymous": {"days": {"2026-03-01": null}, "minute": []}}}',
    ],
)
def test_a_damaged_book_is_named(root: Root, content: bytes) -> None:
    root.write(FILE, content)
    with pytest.raises(StorageError, match=r"quotas\.json"):
        Limiter(root, delay=0).admit(NOBODY, NOON)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, {}),
        ({"x-ratelimit-remaining": "57"}, {"left": 57}),
        ({"x-ratelimit-reset": str(int(NOON.timestamp()) + 90)}, {"reset": NOON + timedelta(seconds=90)}),
        ({"x-ratelimit-reset": "90"}, {"reset": NOON + timedelta(seconds=90)}),
        ({"x-ratelimit-reset": "1"}, {"reset": NOON + timedelta(seconds=1)}),
        ({"x-ratelimit-reset": "1000000000"}, {"reset": NOON}),
        ({"x-ratelimit-reset": "9" * 40}, {"reset": NOON + timedelta(days=1)}),
        ({"x-ratelimit-daily-remaining": " 4 "}, {"left_today": 4}),
        ({"x-ratelimit-minute-remaining": "0"}, {"left_this_minute": 0}),
        ({"x-ratelimit-minute-remaining": "-1", "x-ratelimit-remaining": "many"}, {}),
        ({"x-ratelimit-remaining": "\u0663"}, {}),
        ({"retry-after": "120"}, {"retry_after": 120.0}),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, {"retry_after": 30.0}),
        ({"retry-after": "Sun, 01 Mar 2026 13:00:30 +0100"}, {"retry_after": 30.0}),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, {"retry_after": 0.0}),
        ({"retry-after": "Sun, 01 Mar 2099 11:00:00 GMT"}, {"retry_after": 86400.0}),
        ({"retry-after": "tomorrow"}, {}),
    ],
)
def test_headers_are_read_and_nonsense_is_silence(headers: dict[str, str], said: dict[str, Any]) -> None:
    assert read_limits(headers, NOON) == RateLimits(**said)
