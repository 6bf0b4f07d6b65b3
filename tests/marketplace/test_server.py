"""The loopback services as a client meets them: the log, the faults, starting and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import gzip
import http.client
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import aiohttp
import pytest

from tests.support.marketplace.asking import Got, ask
from tests.support.marketplace.faults import Fault, Faults
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.paths import PROJECT

BREAD = b"---\nname: bread\ndescription: Bakes a loaf\n---\n# Bread\n"
REPO = "/repos/ann/bakery"


@pytest.fixture
def market() -> Iterator[Marketplace]:
    world = World()
    world.repository("ann/bakery").commit({"bread/SKILL.md": BREAD})
    with Marketplace(world) as served:
        yield served


def script(market: Marketplace, *faults: Fault, url: str = f"api:{REPO}") -> None:
    market.faults.script(url, faults)


def test_each_service_has_a_port_of_its_own(market: Marketplace) -> None:
    urls = market.environment()

    assert sorted(urls) == [
        "SKILLERY_GITHUB_API_URL",
        "SKILLERY_GITHUB_ARCHIVE_URL",
        "SKILLERY_GITHUB_RAW_URL",
        "SKILLERY_MCP_REGISTRY_URL",
        "SKILLERY_SKILLSMP_URL",
    ]
    assert len(set(urls.values())) == 5
    assert all(url.startswith("http://127.0.0.1:") for url in urls.values())


def test_the_log_says_what_was_asked_of_whom_and_how_it_ended(market: Marketplace) -> None:
    sha = market.world.repositories[0].head.sha
    ask(market, "skillsmp", "/api/skills?page=1", User_Agent="tester")
    ask(market, "api", f"{REPO}/commits/main")
    ask(market, "archive", f"/Ann/Bakery/zip/{sha}")
    ask(market, "raw", "/ann/nothing/main/SKILL.md")

    seen = [(r.service, r.kind, r.repository, r.status) for r in market.requests]
    assert seen == [
        ("skillsmp", "listing", None, 200),
        ("api", "commit", "ann/bakery", 200),
        ("archive", "archive", "ann/bakery", 200),
        ("raw", "raw", "ann/nothing", 404),
    ]
    first = market.requests[0]
    assert (first.method, first.path, first.query["page"]) == ("GET", "/api/skills", "1")
    assert first.headers["user-agent"] == "tester"
    assert market.count() == 4
    assert market.count(service="archive", repository="ANN/bakery") == market.count(kind="archive") == 1
    market.clear_requests()
    assert market.count() == 0


def test_gaps_and_crowds_are_measured(market: Marketplace) -> None:
    assert market.shortest_gap("api") == float("inf")
    script(market, Fault("hang", seconds=0.3), url="api:/repos/ann/bakery?slow=1")
    waiting = threading.Thread(target=ask, args=(market, "api", f"{REPO}?slow=1"))
    waiting.start()
    while not market.count("api"):
        time.sleep(0.01)
    ask(market, "api", REPO)
    waiting.join()
    ask(market, "api", REPO)

    starts = [request.at for request in market.requests]
    assert market.shortest_gap("api") == min(starts[1] - starts[0], starts[2] - starts[1])
    assert market.log.most_at_once("api") == 2
    assert market.log.most_within("api", 60) == 3
    assert market.log.most_within("api", 1e-9) == 1
    assert market.log.most_at_once("raw") == market.log.most_within("raw", 60) == 0


def test_the_world_may_change_while_it_is_served(market: Marketplace) -> None:
    before = ask(market, "api", f"{REPO}/commits/main").json()["sha"]

    after = market.world.repository("ann/bakery").commit({"tea/SKILL.md": BREAD}).sha

    assert ask(market, "api", f"{REPO}/commits/main").json()["sha"] == after != before


def tell(market: Marketplace) -> Got:
    return ask(market, "api", REPO)


def test_a_script_is_used_up_fault_by_fault(market: Marketplace) -> None:
    script(market, Fault("500"), Fault("none"), Fault("502"))

    assert [tell(market).status for _ in range(4)] == [500, 200, 502, 200]
    assert [request.fault for request in market.requests] == ["500", None, "502", None]
    assert {request.repository for request in market.requests} == {"ann/bakery"}


def test_a_script_may_name_a_query_or_many_urls(market: Marketplace) -> None:
    script(market, Fault("500"), url="skillsmp:/api/skills?page=2")
    script(market, Fault("502"), url="raw:/ann/*")

    assert ask(market, "skillsmp", "/api/skills?page=1").status == 200
    assert ask(market, "skillsmp", "/api/skills?page=2").status == 500
    assert ask(market, "raw", "/ann/bakery/main/bread/SKILL.md").status == 502


def test_too_many_requests_say_when_to_return_in_seconds_as_a_date_or_not_at_all(market: Marketplace) -> None:
    script(market, Fault("429-seconds", seconds=7), Fault("429-date", seconds=7), Fault("429"))

    seconds, date, silent = (tell(market) for _ in range(3))

    assert {seconds.status, date.status, silent.status} == {429}
    assert seconds.headers["retry-after"] == "7"
    due = email.utils.parsedate_to_datetime(date.headers["retry-after"]).timestamp()
    assert 0 <= due - time.time() <= 8
    assert "retry-after" not in silent.headers


def test_html_broken_json_and_missing_fields_arrive_with_200(market: Marketplace) -> None:
    script(market, Fault("html"), Fault("wrong-json"), Fault("missing-fields", fields=("sha", "id")))
    script(market, Fault("missing-fields", fields=("sha",)), url=f"api:{REPO}/commits/main")

    html, wrong, lacking = (tell(market) for _ in range(3))

    assert html.headers["content-type"].startswith("text/html")
    with pytest.raises(ValueError, match="Expecting"):
        wrong.json()
    assert lacking.json()["full_name"] == "ann/bakery"
    assert "id" not in lacking.json()
    commit = ask(market, "api", f"{REPO}/commits/main").json()
    assert "sha" not in commit
    assert "sha" not in commit["commit"]["tree"]
    assert {request.status for request in market.requests} == {200}


def test_a_secondary_limit_is_a_403_that_says_so(market: Marketplace) -> None:
    script(market, Fault("secondary", seconds=5), Fault("secondary"))

    timed, silent = tell(market), tell(market)

    assert (timed.status, timed.headers["retry-after"]) == (403, "5")
    assert "secondary rate limit" in silent.json()["message"]
    assert "retry-after" not in silent.headers


def test_a_cut_connection_ends_in_the_middle_of_the_body(
    market: Marketplace, caplog: pytest.LogCaptureFixture
) -> None:
    whole = tell(market).body
    script(market, Fault("cut"))

    with caplog.at_level(logging.DEBUG), pytest.raises(http.client.IncompleteRead) as cut:
        tell(market)

    assert cut.value.partial == whole[: len(whole) // 2]
    assert tell(market).body == whole
    assert caplog.records == []


def test_an_archive_may_be_cut_short(market: Marketplace) -> None:
    script(market, Fault("cut"), url="archive:*")

    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(market, "archive", "/ann/bakery/zip/main")

    assert cut.value.partial.startswith(b"PK")
    assert cut.value.expected is not None
    assert abs(len(cut.value.partial) - cut.value.expected) <= 1


def test_a_slow_body_comes_whole_in_the_end(market: Marketplace) -> None:
    whole = tell(market).body
    script(market, Fault("slow", seconds=0.2))

    assert tell(market).body == whole

    slow = market.requests[-1]
    assert slow.ended is not None
    # Ten sleeps lie between the two, each of 20 ms.
    assert slow.ended - slow.at > 0.15


def test_a_redirect_leads_to_a_host_that_notes_what_it_is_sent(market: Marketplace) -> None:
    script(market, Fault("redirect", location=market.url("elsewhere") + "/trap"))

    moved = tell(market)
    followed = ask(market, "elsewhere", "/trap", Authorization="Bearer oops")

    assert (moved.status, moved.headers["location"]) == (302, market.url("elsewhere") + "/trap")
    assert followed.status == 200
    assert market.requests[-1].headers["authorization"] == "Bearer oops"


def test_a_bomb_is_small_on_the_wire_and_large_unpacked(market: Marketplace) -> None:
    script(market, Fault("gzip-bomb", size=30_000_000))

    bomb = tell(market)

    assert bomb.headers["content-encoding"] == "gzip"
    assert len(bomb.body) < 100_000
    assert len(gzip.decompress(bomb.body)) == 30_000_000


async def _read_until(url: str, size: int) -> tuple[int, int | None]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        piece = await answer.content.readexactly(size)
        return len(piece), answer.content_length


def test_an_endless_body_announces_no_length_and_a_client_may_walk_away(
    market: Marketplace, caplog: pytest.LogCaptureFixture
) -> None:
    script(market, Fault("endless"))

    with caplog.at_level(logging.DEBUG, "aiohttp"):
        read, announced = asyncio.run(_read_until(market.url("api") + REPO, 3_000_000))

    assert (read, announced) == (3_000_000, None)
    assert tell(market).status == 200
    assert caplog.records == []


def test_json_is_packed_for_those_who_take_it(market: Marketplace) -> None:
    plain, packed = tell(market), ask(market, "api", REPO, Accept_Encoding="gzip")

    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body


async def _ask_twice(url: str, tag: str) -> list[tuple[int, bytes]]:
    answers = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        for tags in ({"If-None-Match": tag}, {}):
            async with session.get(url, headers=tags) as answer:
                answers.append((answer.status, await answer.read()))
    return answers


def test_a_connection_goes_on_after_an_answer_without_a_body(market: Marketplace) -> None:
    whole = tell(market)

    answers = asyncio.run(_ask_twice(market.url("api") + REPO, whole.headers["etag"]))

    assert answers == [(304, b""), (200, whole.body)]


def test_transient_faults_leave_every_answer_reachable_in_three_tries(market: Marketplace) -> None:
    market.faults = Faults(0.5, seed=3)
    for number in range(15):
        statuses = []
        for _ in range(3):
            try:
                statuses.append(ask(market, "skillsmp", f"/api/skills?page={number}").status)
            except http.client.IncompleteRead:
                statuses.append(0)
        assert 200 in statuses


def _wait_in_vain(market: Marketplace) -> None:
    with pytest.raises(OSError, match="closed connection"):
        ask(market, "raw", "/")


def test_stopping_lets_go_of_ports_and_of_those_who_wait() -> None:
    with Marketplace(World(), Faults(1.0, kinds=["hang"], seconds=600)) as market:
        waiting = threading.Thread(target=_wait_in_vain, args=(market,))
        waiting.start()
        while not market.count("raw"):
            time.sleep(0.01)
        port = int(market.url("skillsmp").rpartition(":")[2])
    waiting.join(10)

    assert not waiting.is_alive()
    socket.create_server(("127.0.0.1", port)).close()


def test_six_ports_in_a_row_are_taken_from_the_one_named() -> None:
    for base in range(21_000, 31_000, 50):
        with contextlib.suppress(OSError), Marketplace(World(), port_base=base) as market:
            urls = list(market.environment().values())
            break

    assert urls == [f"http://127.0.0.1:{base + place}" for place in range(5)]


def test_a_taken_port_is_told(market: Marketplace) -> None:
    port = int(market.url("skillsmp").rpartition(":")[2])

    with pytest.raises(OSError, match="in use"), Marketplace(World(), port_base=port):
        pass


def test_the_command_prints_settings_and_serves_them() -> None:
    command = [sys.executable, "-m", "tests.support.marketplace", "--repositories", "2", "--skills", "3"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as served:
        assert served.stdout is not None
        assert served.stderr is not None
        try:
            lines = [served.stdout.readline().strip() for _ in range(5)]
            urls = dict(line.split("=", 1) for line in lines)
            connection = http.client.HTTPConnection(urls["SKILLERY_SKILLSMP_URL"].removeprefix("http://"))
            connection.request("GET", "/api/skills")
            answer = connection.getresponse()
            listing = answer.read()
            connection.close()
        finally:
            served.send_signal(2)
        assert served.stderr.read() == ""

    assert listing.count(b'"githubUrl"') == 3
    assert served.returncode == 0
