from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from aiohttp import web

from storage.root import Root
from tasks.crawl.http.limiter import Quota
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, QuotaExhausted
from tasks.crawl.http.settings import Secret
from tests.support.crawl.loopback_host import NOON, Host, Reply, http_of, impatient, in_loop, says

FINE = says("{}")
HOUR = timedelta(hours=1)
MIDNIGHT = datetime.combine(NOON.date() + timedelta(days=1), datetime.min.time(), NOON.tzinfo)


def gaps(arrivals: list[datetime]) -> list[float]:
    return [(b - a).total_seconds() for a, b in pairwise(arrivals)]


def seconds(at: datetime) -> str:
    return str(int(at.timestamp()))


@in_loop
async def test_requests_keep_their_distance_over_tasks_retries_redirects_and_clients(root: Root) -> None:
    async def moved(_: web.Request) -> web.StreamResponse:
        return web.Response(status=301, headers={"Location": "/b"})

    replies: dict[str, Reply | list[Reply]] = {"/a": [says("", 500), moved], "/b": FINE}
    limits = impatient(delay=0.7)
    async with Host(replies) as host:
        async with host.http(root, limits) as http:
            await asyncio.gather(*(http.get(f"{host.url}/{path}") for path in "abbbbb"))
            assert http.requests == 8
        async with host.http(root, limits) as another, Host({"/a": FINE}, host.time) as elsewhere:
            slept = host.time.slept
            await another.get(f"{elsewhere.url}/a")  # another host waits for nobody
            assert host.time.slept == slept
            await another.get(f"{host.url}/b")
        assert len(host.arrivals) == 9
        assert min(gaps(host.arrivals)) >= 0.699999
        assert max(gaps(host.arrivals)) < 1.5


@pytest.mark.parametrize("most", [1, 3])
@in_loop
async def test_a_host_sees_no_more_at_once_than_allowed(root: Root, most: int) -> None:
    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return web.Response()

    async with Host({"/a": slow}) as host, host.http(root, impatient(concurrency=most)) as http:
        await asyncio.gather(*(http.get(f"{host.url}/a") for _ in range(12)))
        assert host.most_at_once == most


@in_loop
async def test_a_request_that_waits_for_its_retry_holds_no_slot(root: Root) -> None:
    async with Host({"/a": [says("", 500), FINE], "/b": FINE}) as host:
        released = asyncio.Event()

        async def sleep(_: float) -> None:
            await released.wait()

        async with http_of(root, {"delay": 0, "concurrency": 1}, sleep=sleep) as http:
            waiting = asyncio.create_task(http.get(f"{host.url}/a"))
            while not host.requests:
                await asyncio.sleep(0)
            await http.get(f"{host.url}/b")
            assert not waiting.done()
            released.set()
            await waiting
        assert host.paths() == ["/a", "/b", "/a"]


@in_loop
async def test_a_used_up_day_ends_without_a_request_and_over_a_restart(root: Root) -> None:
    async with Host({"/a": FINE}) as host:
        limits = impatient(quotas={host.name: Quota(per_day=3)})
        for left in (2, 1, 0):
            async with host.http(root, limits) as http:
                await http.get(f"{host.url}/a")
                assert http.quota_left(f"{host.url}/b") == left
        async with host.http(root, limits) as http:
            with pytest.raises(QuotaExhausted, match="used up until 2026-03-02 00:00 UTC") as caught:
                await http.get(f"{host.url}/a")
            assert (caught.value.reason, caught.value.until) == ("quota", MIDNIGHT)
            assert (http.requests, len(host.requests), host.time.slept) == (0, 3, 0)
            host.time.now = MIDNIGHT
            await http.get(f"{host.url}/a")
            assert http.quota_left(host.url) == 2


@in_loop
async def test_a_request_is_written_down_before_it_goes_out(root: Root) -> None:
    written: list[bytes] = []

    async def look(_: web.Request) -> web.StreamResponse:
        written.append(root.read("state/quotas.json"))
        return web.Response()

    async with Host({"/a": look, "/b": says("", 500)}) as host:
        limits = impatient(quotas={host.name: Quota(per_day=3)})
        async with host.http(root, limits) as http:
            await http.get(f"{host.url}/a")
            with pytest.raises(QuotaExhausted):
                await http.get(f"{host.url}/b")  # failed tries count too
        assert len(host.requests) == 3
    assert b'"2026-03-01": 1' in written[0]


@in_loop
async def test_two_services_on_one_host_have_quotas_and_pauses_of_their_own(root: Root) -> None:
    replies = {"/skills/a": FINE, "/skills/b": says("", 429, **{"Retry-After": "900"}), "/forge/a": FINE}
    async with Host(replies) as host:
        skills, forge = f"{host.name}/skills", f"{host.name}/forge"
        limits = impatient(quotas={skills: Quota(per_day=3)}, services=frozenset({skills, forge}))
        async with host.http(root, limits) as http:
            await http.get(f"{host.url}/skills/a")
            with pytest.raises(HttpTransient, match="HTTP 429"):
                await http.get(f"{host.url}/skills/b")
            started = host.time.now
            await http.get(f"{host.url}/forge/a")
            assert host.time.now - started < timedelta(seconds=900)
            assert http.quota_left(f"{host.url}/forge/a") is None
            assert http.quota_left(f"{host.url}/skills/a") == 1
            assert http.quota_left(f"{host.url}/skillset") is None  # a folder's name is no prefix of another


@in_loop
async def test_tokens_and_nobody_have_quotas_of_their_own(root: Root) -> None:
    async with Host({"/a": FINE}) as host:
        limits = impatient(quotas={host.name: Quota(per_day=1)}, token_quotas={host.name: Quota(per_day=2)})
        async with host.http(root, limits) as http:
            for token, allowed in ((None, 1), (Secret(""), 0), (Secret("one"), 2), (Secret("two"), 2)):
                for _ in range(allowed):
                    await http.get(f"{host.url}/a", token=token)
                with pytest.raises(QuotaExhausted):
                    await http.get(f"{host.url}/a", token=token)
        assert "one" not in root.read("state/quotas.json").decode()


@in_loop
async def test_the_servers_word_on_a_used_up_day_is_taken_and_remembered(root: Root) -> None:
    said = says('{"success": false, "error": {"code": "DAILY_QUOTA_EXCEEDED"}}', 429)
    async with Host({"/a": [said, FINE]}) as host:
        for _ in range(2):
            async with host.http(root) as http:
                with pytest.raises(QuotaExhausted) as caught:
                    await http.get(f"{host.url}/a")
                assert caught.value.until == MIDNIGHT
                assert http.quota_left(host.url) == 0
        assert len(host.requests) == 1
        async with host.http(root) as http:
            await http.get(f"{host.url}/a", token=Secret("another client"))
            host.time.now = MIDNIGHT
            await http.get(f"{host.url}/a")


@in_loop
async def test_less_left_than_counted_is_believed_and_more_is_not(root: Root) -> None:
    replies = [says("{}", X_RateLimit_Daily_Remaining=left) for left in ("2", "40", "0")]
    async with Host({"/a": [*replies]}) as host:
        limits = impatient(quotas={host.name: Quota(per_day=50)})
        async with host.http(root, limits) as http:
            await http.get(f"{host.url}/a")
            assert http.quota_left(host.url) == 2
            await http.get(f"{host.url}/a")
            assert http.quota_left(host.url) == 1
            await http.get(f"{host.url}/a")  # the last one is answered, and the next not sent
            with pytest.raises(QuotaExhausted):
                await http.get(f"{host.url}/a")
            assert len(host.requests) == 3


@in_loop
async def test_a_day_that_the_server_calls_used_up_is_over_though_no_quota_is_known(root: Root) -> None:
    replies = [says("{}", X_RateLimit_Daily_Remaining="0"), FINE]
    async with Host({"/a": [*replies]}) as host, host.http(root) as http:
        await http.get(f"{host.url}/a")
        with pytest.raises(QuotaExhausted):
            await http.get(f"{host.url}/a")


@in_loop
async def test_a_used_up_minute_is_waited_for(root: Root) -> None:
    async with Host({"/a": [says("{}", X_RateLimit_Minute_Remaining="0"), FINE]}) as host:
        async with host.http(root) as http:
            await http.get(f"{host.url}/a")
            await http.get(f"{host.url}/a")
        assert gaps(host.arrivals) == [60.0]


@pytest.mark.parametrize("status", [200, 404, 403, 429])
@in_loop
async def test_no_request_goes_out_before_a_far_reset(root: Root, status: int) -> None:
    reset = NOON + timedelta(minutes=40)
    last = says("{}", status, X_RateLimit_Remaining="0", X_RateLimit_Reset=seconds(reset))
    async with Host({"/a": last, "/b": FINE}) as host, host.http(root) as http:
        if status == 200:
            await http.get(f"{host.url}/a")
        else:
            with pytest.raises(HttpTerminal if status == 404 else QuotaExhausted):
                await http.get(f"{host.url}/a")
        with pytest.raises(QuotaExhausted) as caught:
            await http.get(f"{host.url}/b")
        assert caught.value.until == reset
        assert (len(host.requests), http.quota_left(host.url)) == (1, 0)
        host.time.now = reset
        await http.get(f"{host.url}/b")
        assert http.quota_left(host.url) is None


@pytest.mark.parametrize("status", [200, 403])
@in_loop
async def test_a_near_reset_is_waited_for(root: Root, status: int) -> None:
    reset = NOON + timedelta(seconds=30)
    last = says("{}", status, X_RateLimit_Remaining="0", X_RateLimit_Reset=seconds(reset))
    async with Host({"/a": [last, FINE]}) as host, host.http(root) as http:
        await http.get(f"{host.url}/a")
        if status == 200:
            await http.get(f"{host.url}/a")
        assert gaps(host.arrivals) == [30.0]
        host.say("/b", says("{}", X_RateLimit_Remaining="57", X_RateLimit_Reset=seconds(reset + HOUR)))
        await http.get(f"{host.url}/b", token=Secret("x"))
        assert http.quota_left(host.url) == 57


@in_loop
async def test_waiting_with_the_real_clock_comes_to_an_end(root: Root) -> None:
    async with Host({"/a": FINE}) as host, http_of(root, {"delay": 0.02}) as http:
        began = time.monotonic()
        await asyncio.gather(*(http.get(f"{host.url}/a") for _ in range(4)))
        assert time.monotonic() - began >= 0.059


@in_loop
async def test_a_cancelled_request_leaves_the_host_usable_and_a_long_pause_is_told_to_all(root: Root) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    replies = {"/a": says("", 429, Retry_After="600"), "/never": never}
    async with Host(replies) as host, host.http(root, impatient(concurrency=1)) as http:
        task = asyncio.create_task(http.get(f"{host.url}/never"))
        while not host.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        asked = (http.get(f"{host.url}/a") for _ in range(5))
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(r, HttpTransient) and r.reason == "rate-limited" for r in results)
        assert host.paths().count("/a") == 1
