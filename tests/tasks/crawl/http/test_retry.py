from __future__ import annotations

import asyncio
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from storage.errors import WrongInput
from storage.root import Root
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, QuotaExhausted
from tasks.models.retry import RetryPolicy
from tests.support.crawl.loopback_host import (
    NOON,
    Host,
    Reply,
    cuts,
    drips,
    hangs_up,
    impatient,
    in_loop,
    says,
)

FINE = says('"fine"')
SECONDARY = '{"message": "You have exceeded a secondary rate limit"}'


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def patient(**policy: float) -> dict[str, Any]:
    return {"delay": 0, "retry": RetryPolicy(**policy)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault",
    [
        *[pytest.param(says("", status), id=str(status)) for status in (408, 425, 429, 500, 502, 503, 504)],
        pytest.param(says(SECONDARY, 403), id="403 secondary"),
        pytest.param(says("", 403, Retry_After="0"), id="403 with Retry-After"),
        pytest.param(says("<html>busy</html>", 503, Content_Type="text/html"), id="503 page"),
        pytest.param(cuts, id="cut"),
        pytest.param(hangs_up, id="hang-up"),
        pytest.param(says(b"\x1f\x8b no gzip", Content_Encoding="gzip"), id="damaged"),
    ],
)
def test_passing_faults_are_tried_again(root: Root, fault: Reply) -> None:
    @in_loop
    async def asked() -> None:
        async with Host({"/a": [fault, fault, FINE]}) as host, host.http(root) as http:
            assert (await http.get(f"{host.url}/a")).json() == "fine"
            assert http.requests == len(host.requests) == 3
            assert host.time.slept == 0

    asked()


@pytest.mark.parametrize(
    ("fault", "reason", "status"),
    [
        (says("", 500), "server", 500),
        (says("", 429), "rate-limited", 429),
        (says(SECONDARY, 403), "rate-limited", 403),
        (says("", 408), "timeout", 408),
        (cuts, "connection", None),
        (hangs_up, "connection", None),
    ],
)
def test_when_the_tries_are_used_up_the_last_fault_is_raised(
    root: Root, fault: Reply, reason: str, status: int | None
) -> None:
    @in_loop
    async def asked() -> None:
        async with Host({"/a": [says("", 502), fault]}) as host, host.http(root) as http:
            with pytest.raises(HttpTransient) as caught:
                await http.get(f"{host.url}/a")
            assert (caught.value.reason, caught.value.status) == (reason, status)
            assert len(host.requests) == 3

    asked()


@in_loop
async def test_a_server_error_that_no_retry_mends_is_raised_at_once(root: Root) -> None:
    async with Host({"/a": says("", 501)}) as host, host.http(root) as http:
        with pytest.raises(HttpTransient, match="501"):
            await http.get(f"{host.url}/a")
        assert len(host.requests) == 1


@in_loop
async def test_waits_double_up_to_the_longest_and_are_drawn(root: Root) -> None:
    async with Host({"/a": says("", 500)}) as host, host.http(root, patient(tries=6)) as http:
        with pytest.raises(HttpTransient):
            await http.get(f"{host.url}/a")
        assert host.time.sleeps == [1.5, 3.0, 6.0, 10.0, 10.0]


@pytest.mark.parametrize("draw", [0.0, 0.999])
def test_the_first_wait_lies_between_the_least_and_its_double(draw: float) -> None:
    assert RetryPolicy().backoff(1, draw) == pytest.approx(1.0 + draw)


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"wait_min": -1.0}, {"wait_max": -1.0}])
def test_a_policy_out_of_range_is_wrong_input(wrong: dict[str, float]) -> None:
    with pytest.raises(WrongInput):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [429, 403, 503])
@pytest.mark.parametrize(
    "told", ["7", format_datetime(NOON + timedelta(seconds=7), usegmt=True)], ids=["seconds", "date"]
)
def test_the_wait_that_a_server_asks_for_is_waited(root: Root, status: int, told: str) -> None:
    @in_loop
    async def asked() -> None:
        replies = {"/a": [says("", status, Retry_After=told), FINE]}
        async with Host(replies) as host, host.http(root, patient()) as http:
            await http.get(f"{host.url}/a")
            assert host.time.slept == 7.0

    asked()


@pytest.mark.parametrize("told", ["-5", "soon", "", "Sun, 99 Foo 2026"])
def test_nonsense_for_a_wait_counts_as_silence(root: Root, told: str) -> None:
    @in_loop
    async def asked() -> None:
        replies = {"/a": [says("", 429, Retry_After=told), FINE]}
        async with Host(replies) as host, host.http(root, patient()) as http:
            await http.get(f"{host.url}/a")
            assert host.time.sleeps == [1.5]

    asked()


@in_loop
async def test_the_whole_host_waits_as_told_and_others_do_not(root: Root) -> None:
    told = says("", 503, Retry_After="30")
    async with (
        Host({"/a": [told, FINE], "/b": FINE}) as host,
        Host({"/c": FINE}, host.time) as other,
        host.http(root, patient(tries=1)) as http,
    ):
        with pytest.raises(HttpTransient):
            await http.get(f"{host.url}/a")
        await http.get(f"{other.url}/c")
        assert host.time.slept == 0
        await http.get(f"{host.url}/b")
        assert host.time.slept == 30


@in_loop
async def test_a_long_wait_is_remembered_and_nothing_is_asked_until_it_is_over(root: Root) -> None:
    told = says("", 429, Retry_After="3600")
    async with Host({"/a": [told, FINE], "/b": FINE}) as host:
        async with host.http(root) as http:
            with pytest.raises(HttpTransient) as caught:
                await http.get(f"{host.url}/a")
            assert (caught.value.reason, caught.value.wait) == ("rate-limited", 3600)
        async with host.http(root) as restarted:
            host.time.now += timedelta(seconds=3539)
            with pytest.raises(HttpTransient, match="no requests before 2026-03-01 13:00:00 UTC") as caught:
                await restarted.get(f"{host.url}/b")
            assert (caught.value.reason, host.time.slept) == ("rate-limited", 0)
            assert not isinstance(caught.value, QuotaExhausted)
            assert host.paths() == ["/a"]
            host.time.now += timedelta(seconds=1)
            await restarted.get(f"{host.url}/b")
            assert (host.paths(), host.time.slept) == (["/a", "/b"], 60)


@in_loop
async def test_a_wait_of_years_is_not_believed(root: Root) -> None:
    async with Host({"/a": [says("", 429, Retry_After="9" * 30), FINE]}) as host, host.http(root) as http:
        with pytest.raises(HttpTransient):
            await http.get(f"{host.url}/a")
        host.time.now += timedelta(days=1)
        await http.get(f"{host.url}/a")


@in_loop
async def test_a_dripping_body_ends_at_the_time_limit(root: Root) -> None:
    limits = impatient(timeout=0.3, retry=RetryPolicy(tries=1))
    async with Host({"/a": drips}) as host, host.http(root, limits) as http:
        with pytest.raises(HttpTransient, match=r"0\.3 s") as caught:
            await http.get(f"{host.url}/a")
        assert (caught.value.reason, caught.value.status) == ("timeout", None)


@in_loop
async def test_a_refusal_with_a_dripping_body_keeps_its_meaning(root: Root) -> None:
    async def refuses(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=404, headers={"Content-Length": "100000"})
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.05)

    async with Host({"/a": refuses}) as host, host.http(root, impatient(timeout=0.3)) as http:
        with pytest.raises(HttpTerminal) as caught:
            await http.get(f"{host.url}/a")
        assert caught.value.reason == "missing"


def test_used_outside_of_its_block_it_says_so(root: Root) -> None:
    @in_loop
    async def asked() -> None:
        async with Host({"/a": FINE}) as host:
            with pytest.raises(RuntimeError, match="async with"):
                await host.http(root).get(f"{host.url}/a")

    asked()
